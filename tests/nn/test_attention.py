import math

import pytest
import torch

from megalite.config import ModelConfig
from megalite.nn.attention import Attention, Positions
from megalite.nn.context import LayerContext
from megalite.nn.cores import fused, unfused
from megalite.nn.mask import DocumentStarts
from megalite.ops import philox
from tests.harness import run_world
from tests.nn.world import assert_same, layer_context, random

CORES = {"fused": fused.Core, "unfused": unfused.Core}


def model(heads=4, groups=2, head_dim=8, sequence=9, **fields):
    defaults = dict(num_layers=1, hidden_size=16, num_attention_heads=heads, kv_channels=head_dim, seq_length=sequence)
    return ModelConfig(
        **defaults, group_query_attention=True, num_query_groups=groups, **{"attention_dropout": 0.0, **fields}
    )


def inputs(config, batch_size=2, seed=0):
    s, g, d = config.seq_length, config.query_groups, config.head_dim
    shapes = [(s, batch_size, g, config.num_attention_heads // g, d), (s, batch_size, g, d), (s, batch_size, g, d)]
    return [random(*shape, seed=seed + at).requires_grad_() for at, shape in enumerate(shapes)]


def packed(query, key, value):
    """As the cores take them: of each group its queries, its key and its value."""
    return torch.cat([query, key.unsqueeze(3), value.unsqueeze(3)], dim=3)


def by_loops(query, key, value, document_ids=None, keep=None, p=0.0):
    """Attention of each query over the keys it may see, one at a time."""
    s, b, groups, per_group, d = query.shape
    rows = []
    for i in range(s):
        for sample in range(b):
            for head in range(groups * per_group):
                group, within = divmod(head, per_group)
                seen = [
                    j
                    for j in range(i + 1)
                    if document_ids is None or document_ids[sample, j] == document_ids[sample, i]
                ]
                scores = torch.stack(
                    [query[i, sample, group, within] @ key[j, sample, group] / math.sqrt(d) for j in seen]
                )
                weights = scores.exp() / scores.exp().sum()
                if keep is not None:
                    weights = weights * torch.tensor(
                        [keep(sample, head, i, j) / (1 - p) for j in seen], dtype=torch.float64
                    )
                rows.append(sum(w * value[j, sample, group] for w, j in zip(weights, seen)))
    return torch.stack(rows).view(s, b, -1)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("heads, groups", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("documents", [False, True])
def test_cores_equal_attention_by_loops(name, heads, groups, documents):
    config = model(heads, groups)
    batch = (
        {"document_ids": torch.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 3], [4, 4, 4, 4, 4, 4, 4, 4, 4]])} if documents else {}
    )
    tensors, own = inputs(config), inputs(config)
    expected = by_loops(*tensors, **batch)
    context = CORES[name]("a", config, LayerContext(dtype=torch.float64))(
        packed(*own), DocumentStarts().of(batch), batch
    )
    assert_same(context, expected)
    weights = random(*expected.shape, seed=9)
    (expected * weights).sum().backward()
    (context * weights).sum().backward()
    for tensor, mine in zip(tensors, own):
        assert_same(mine.grad, tensor.grad)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 31, 33, 64, 127, 129, 257])
def test_any_length_in_16_bits(name, length):
    config = model(2, 2, 16, length)
    tensors = inputs(config)
    truth = CORES["unfused"]("a", config, LayerContext(dtype=torch.float64))(packed(*tensors), None, {})
    own = [tensor.detach().bfloat16().requires_grad_() for tensor in tensors]
    context = CORES[name]("a", config, LayerContext(dtype=torch.bfloat16))(packed(*own), None, {})
    assert context.dtype == torch.bfloat16
    torch.testing.assert_close(context.double(), truth.detach(), rtol=0.05, atol=0.03)
    context.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in own)


@pytest.mark.parametrize("in_fp32", [False, True])
def test_softmax_is_in_float32_inside(in_fp32):
    config = model(2, 2, 16, 64, attention_softmax_in_fp32=in_fp32)
    query, key, value = (tensor.detach().mul(3).bfloat16() for tensor in inputs(config))
    actual = unfused.Core("a", config, LayerContext(dtype=torch.bfloat16))(packed(query, key, value), None, {})
    truth = unfused.Core("a", config, LayerContext(dtype=torch.float64))(
        packed(query, key, value).double(), None, {}
    )
    # A sum of up to 64 exponentials in bfloat16 would be wrong by several percent.
    assert (actual.double() - truth).norm() < 0.02 * truth.norm()


def keep_of(config, sample_ids, seed):
    def keep(sample, head, i, j):
        s = config.seq_length
        element = ((int(sample_ids[sample]) * config.num_attention_heads + head) * s + i) * s + j
        word = int(philox.words(seed, "dropout/a", torch.tensor(element // 8))[element // 2 % 4])
        half = word >> 16 if element % 2 else word & 0xFFFF
        return float(half >= round(config.attention_dropout * 2**16))

    return keep


def test_attention_dropout_is_that_of_the_weight_in_the_run():
    config, ids = model(attention_dropout=0.3), torch.tensor([5, 1000])
    tensors = inputs(config)
    expected = by_loops(*tensors, keep=keep_of(config, ids, 7), p=19661 / 65536)
    core = unfused.Core("a", config, LayerContext(dtype=torch.float64, seed=7))
    assert_same(core(packed(*tensors), None, {"sample_ids": ids}), expected)
    assert_same(core.eval()(packed(*tensors), None, {}), by_loops(*tensors))


def local_core(rank, world_size, config, ids):
    ctx = layer_context(rank, world_size)
    tensors = [tensor.chunk(world_size, dim=2)[rank] for tensor in inputs(config)]
    return unfused.Core("a", config, ctx)(packed(*tensors), None, {"sample_ids": ids}).detach()


def test_attention_dropout_does_not_show_tensor_parallelism():
    config, ids = model(attention_dropout=0.3), torch.tensor([5, 1000])
    whole = unfused.Core("a", config, LayerContext(dtype=torch.float64, seed=7))(
        packed(*inputs(config)), None, {"sample_ids": ids}
    )
    assert_same(torch.cat(run_world(local_core, 2, config, ids), dim=-1), whole)


@pytest.mark.parametrize("backend, p, training, expected", [
    ("auto", 0.0, True, "fused"), ("auto", 0.1, True, "unfused"), ("auto", 0.1, False, "fused"),
    ("unfused", 0.0, True, "unfused"), ("fused", 0.0, True, "fused"),
])  # fmt: skip
def test_choice_of_core(backend, p, training, expected):
    attention = Attention(
        "a", model(attention_dropout=p, attention_backend=backend), LayerContext(), Positions()
    ).train(training)
    assert isinstance(attention._core(), CORES[expected])


def test_editing_one_document_leaves_the_others_logits_unchanged():
    config = model(position_embedding_type="none")
    attention = Attention("a", config, LayerContext(dtype=torch.float64), Positions())
    batch = {"document_ids": torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 3]])}
    x = random(9, 1, 16)
    edited = x.clone()
    edited[:4] += 1
    before, after = attention(x, batch), attention(edited, batch)
    assert torch.equal(before[4:], after[4:]) and not torch.equal(before[:4], after[:4])


def test_starts_of_documents_are_found_once_for_a_micro_batch():
    documents, first = DocumentStarts(), {"document_ids": torch.tensor([[0, 0, 1, 1, 1, 7], [3, 4, 4, 5, 6, 6]])}
    starts = documents.of(first)
    assert starts.tolist() == [[0, 0, 2, 2, 2, 5], [0, 1, 1, 3, 4, 4]]
    assert documents.of(dict(first)) is starts
    assert documents.of({"document_ids": torch.tensor([[0, 0, 0]])}).tolist() == [[0, 0, 0]]
    assert documents.of({}) is None
    first["document_ids"].zero_()  # a buffer that is filled anew
    assert documents.of(first).tolist() == [[0] * 6, [0] * 6]
