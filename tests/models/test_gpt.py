import math
from pathlib import Path

import pytest
import torch

from megalite.models import gpt
from megalite.nn.context import LayerContext
from megalite.parallel.collectives import all_reduce
from tests.harness import run_world
from tests.models.cases import build, forward, gpt2, llama, make_batch, own, randomize
from tests.models.plain_gpt import loss_sum
from tests.nn.world import assert_same, every_case, layer_context

GOLDEN = Path(__file__).parent.parent / "golden" / "parameters"
MODELS = {
    "gpt2": gpt2(),
    "gpt2-128-untied-smoothed": gpt2(vocab_size=128, untie_embeddings_and_output_weights=True, label_smoothing=0.1),
    "gpt2-unfused-squared-relu": gpt2(attention_backend="unfused", squared_relu=True, position_embedding_type="none"),
    "gpt2-relu-wide-heads": gpt2(relu=True, kv_channels=12, max_position_embeddings=20),
    "llama": llama(),
    "llama-tied-one-group-a-head-unfused": llama(
        untie_embeddings_and_output_weights=False, num_query_groups=4, attention_backend="unfused", add_qkv_bias=True
    ),
    "llama-qk-norm": llama(qk_layernorm=True),
    "gpt2-rope-qk-layer-norm": gpt2(position_embedding_type="rope", qk_layernorm=True, swiglu=True, ffn_hidden_size=40),
}


def check_gpt(rank, world_size, sequence_parallel, documents, name):
    model = MODELS[name]
    if model.query_groups % world_size:
        return
    ctx = layer_context(rank, world_size, sequence_parallel)
    modules, held = build(model, ctx)
    wholes, batch = randomize(held), make_batch(model, documents=documents)
    expected = loss_sum(wholes, model, batch)
    expected.backward()
    result = forward(modules, batch)
    assert result["loss_sum"].dtype == torch.float64
    assert_same(result["loss_sum"], expected)
    assert result["num_tokens"] == batch["loss_mask"].sum()
    result["loss_sum"].backward()
    for name, param in held.items():
        rows, grad = param.spec.box.extent[0], param.grad
        if param.spec.reduce_axes:
            all_reduce(grad, ctx.tp)
        torch.testing.assert_close(
            grad[:rows], own(wholes[name].grad, param), rtol=1e-10, atol=1e-10, msg=lambda text: f"{name}: {text}"
        )
        assert not grad[rows:].any(), f"{name}: padding has a gradient"


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_loss_and_every_gradient_equal_plain_pytorch(tp):
    run_world(every_case, tp, check_gpt, [False, True], [False, True], MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_number_of_parameters(name):
    _, held = build(MODELS[name], LayerContext())
    assert gpt.num_parameters(MODELS[name]) == sum(math.prod(param.spec.global_shape) for param in held.values())


def test_numbers_of_parameters_of_published_models():
    gpt2_small = gpt2(num_layers=12, hidden_size=768, num_attention_heads=12, seq_length=1024, vocab_size=50257)
    assert gpt.num_parameters(gpt2_small) == 124_439_808
    llama2_7b = llama(
        num_layers=32,
        hidden_size=4096,
        ffn_hidden_size=11008,
        num_attention_heads=32,
        num_query_groups=32,
        seq_length=4096,
        vocab_size=32000,
    )
    assert gpt.num_parameters(llama2_7b) == 6_738_415_616


def table(held):
    rows = []
    for name, param in held.items():
        spec = param.spec
        init = f"{spec.init.kind} {spec.init.std:.4g}" if spec.init.kind == "normal" else spec.init.kind
        axes = "+".join(spec.reduce_axes) or "-"
        rows.append(
            f"{name:32} {str(spec.global_shape):20} {init:16} {'decay' if spec.decay else 'no-decay':9} {axes}\n"
        )
    return "".join(rows)


def table_of_rank(rank, world_size, model):
    return table(build(model, layer_context(rank, world_size, True))[1])


@pytest.mark.parametrize("name, model", [("gpt2", gpt2()), ("llama", llama(qk_layernorm=True))])
def test_parameters_are_those_of_the_golden_table(name, model):
    """Name, global shape, initial values, weight decay, and the axes of a sequence-parallel gradient's reduction."""
    tables = run_world(table_of_rank, 2, model)
    assert tables[0] == tables[1] == (GOLDEN / f"{name}.txt").read_text()


def local_shapes(rank, world_size):
    _, held = build(llama(qk_layernorm=True), layer_context(rank, world_size))
    return {name.removeprefix("layers.0."): (param.spec.box.offset, tuple(param.shape)) for name, param in held.items()}


def test_shards_are_boxes_of_the_fused_parameters():
    shapes = run_world(local_shapes, 2)[1]
    assert shapes["attention.qkv.weight"] == ((1, 0, 0, 0), (1, 4, 8, 32))
    assert shapes["attention.out.weight"] == ((0, 16), (32, 16))
    assert shapes["mlp.up.weight"] == ((0, 24, 0), (2, 24, 32))
    assert shapes["mlp.down.weight"] == ((0, 24), (32, 24))
    assert shapes["embedding.word.weight"] == (
        (101, 0),
        (128, 32),
    )  # 256 rows on two ranks: the second holds padding only
    assert shapes["attention.q_norm.weight"] == ((0,), (8,))


def initial_parts(rank, world_size, model):
    _, held = build(model, layer_context(rank, world_size))
    return {name: (param.spec, param.detach()[: param.spec.box.extent[0]]) for name, param in held.items()}


@pytest.mark.parametrize("model", [gpt2(), llama()])
def test_initial_values_do_not_depend_on_tensor_parallelism(model):
    (wholes,) = run_world(initial_parts, 1, model)
    for parts in run_world(initial_parts, 2, model):
        for name, (spec, part) in parts.items():
            assert torch.equal(part, wholes[name][1][spec.box.inside(wholes[name][0].box)]), name
    for name, (spec, whole) in wholes.items():
        if spec.init.kind == "normal":
            assert abs(float(whole.std()) / spec.init.std - 1) < 0.1, name


def test_a_tied_head_shares_the_parameter_or_holds_an_equal_copy():
    model, ctx = gpt2(), LayerContext()
    modules, held = build(model, ctx)
    assert modules[-1].weight is modules[0].word.weight
    head = gpt.units(model)[-1]
    assert head.ties == ("embedding.word.weight",)
    copy = head.build(ctx, {}).weight
    assert copy.spec.tie_copy and not held["embedding.word.weight"].spec.tie_copy
    assert torch.equal(copy, held["embedding.word.weight"]) and copy.spec.name == "embedding.word.weight"
    assert gpt.units(llama())[-1].ties == ()


def dropped_loss(rank, world_size, sequence_parallel, backend):
    model = gpt2(hidden_dropout=0.2, attention_dropout=0.2 if backend == "unfused" else 0.0, attention_backend=backend)
    modules, held = build(model, layer_context(rank, world_size, sequence_parallel))
    randomize(held)
    batch = make_batch(model)
    losses = [forward(modules, batch)["loss_sum"].detach()]
    for at in range(3):  # one sample at a time
        losses.append(
            forward(modules, {name: field[at : at + 1] for name, field in batch.items()})["loss_sum"].detach()
        )
    for module in modules:
        module.eval()
    return losses + [forward(modules, batch)["loss_sum"].detach()]


@pytest.mark.parametrize("tp", [2, 4])
def test_dropout_shows_neither_layout_nor_micro_batch(tp):
    (alone,) = run_world(every_case, 1, dropped_loss, [False], ["fused", "unfused"])
    for whole, *samples, evaluated in alone:
        assert_same(sum(samples), whole)
        assert abs(float(evaluated / whole) - 1) > 1e-4
    assert_same(alone[0][-1], alone[1][-1])
    for results in run_world(every_case, tp, dropped_loss, [False, True], ["fused", "unfused"]):
        for result, expected in zip(results, alone + alone):
            for mine, truth in zip(result, expected):
                assert_same(mine, truth)


def test_units_name_the_batch_fields_they_read():
    def fields(model):
        return [sorted(unit.batch_fields) for unit in gpt.units(model)]

    assert fields(gpt2(num_layers=1)) == [["position_ids", "tokens"], ["document_ids"], ["labels", "loss_mask"]]
    assert fields(llama(num_layers=1, hidden_dropout=0.1)) == [
        ["sample_ids", "tokens"],
        ["document_ids", "position_ids", "sample_ids"],
        ["labels", "loss_mask"],
    ]
    assert fields(gpt2(num_layers=1, attention_dropout=0.1))[1] == ["document_ids", "sample_ids"]


def test_modules_read_no_other_field_and_change_no_input():
    model = llama(hidden_dropout=0.1, attention_dropout=0.1)
    modules, _ = build(model, LayerContext(dtype=torch.float64))
    batch, carry = make_batch(model, documents=True), {}
    for unit, module in zip(gpt.units(model), modules):
        given = {name: field for name, field in batch.items() if name in unit.batch_fields}
        before = {name: tensor.detach().clone() for name, tensor in {**given, **carry}.items()}
        outputs = module(carry, given)
        for name, tensor in {**given, **carry}.items():
            assert torch.equal(tensor, before[name]), f"{unit.name} changed {name}"
        carry = outputs


def test_costs_are_flops_per_token():
    embedding, layer, *_, head = gpt.units(gpt2())
    assert embedding.cost == 0.0
    assert layer.cost == 2 * (12 * 32 * 32) + 2 * 2 * 8 * 32  # products; scores and sums over 8 of 16 keys on average
    assert head.cost == 2 * 32 * 128


def test_carry_declares_what_stages_exchange():
    spec = gpt.carry_spec(gpt2(), 3, 4, True, torch.bfloat16)
    assert list(spec) == ["hidden"] and spec["hidden"].shape == (4, 3, 32) and spec["hidden"].dtype == torch.bfloat16
    assert gpt.carry_spec(gpt2(), 3, 4, False, torch.float32)["hidden"].shape == (16, 3, 32)


def test_logits_of_evaluation_keep_no_graph():
    modules, _ = build(gpt2(), LayerContext(dtype=torch.float64))
    with torch.no_grad():
        carry = forward(modules[:-1], make_batch(gpt2()))
        logits = modules[-1].logits(carry)
    assert logits.shape == (16, 3, 128) and not logits.requires_grad
