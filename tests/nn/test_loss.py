import re

import pytest
import torch
import torch.nn.functional as F

from megalite.errors import ConfigError, DataError
from megalite.nn.loss import vocab_parallel_cross_entropy
from megalite.nn.vocabulary import VocabularyShard
from megalite.parallel.group import Group
from tests.harness import run_world
from tests.nn.world import assert_gradient, assert_same, every_case, layer_context, random

SEQUENCE, BATCH = 6, 2


def dense(logits, labels, label_smoothing):
    """Written out in float64: minus the sum of target probability times log-probability."""
    log_p = logits - logits.amax(-1, keepdim=True)
    log_p = log_p - log_p.exp().sum(-1, keepdim=True).log()
    target = torch.full_like(logits, label_smoothing / logits.shape[-1])
    target.scatter_add_(
        -1, labels.unsqueeze(-1), torch.full_like(labels, 1, dtype=logits.dtype).unsqueeze(-1) * (1 - label_smoothing)
    )
    return -(target * log_p).sum(-1)


def check_loss(rank, world_size, vocabulary, label_smoothing, scale):
    vocab_size, padded_size = vocabulary
    tp = layer_context(rank, world_size).tp
    shard = VocabularyShard.of(vocab_size, padded_size, tp)
    logits = (random(SEQUENCE, BATCH, vocab_size) * scale).requires_grad_()
    labels = torch.randint(0, vocab_size, (SEQUENCE, BATCH), generator=torch.Generator().manual_seed(1))
    labels[0, 0], labels[0, 1] = 0, vocab_size - 1
    weights = random(SEQUENCE, BATCH, seed=2)
    expected = dense(logits, labels, label_smoothing)
    (expected * weights).sum().backward()

    padding = torch.full((SEQUENCE, BATCH, padded_size - vocab_size), 1e4, dtype=torch.float64)

    def local(whole):
        return torch.cat((whole, padding), -1).chunk(world_size, -1)[rank]

    local_logits = local(logits.detach()).clone().requires_grad_()
    loss = vocab_parallel_cross_entropy(local_logits.clone(), labels, shard, tp, label_smoothing)
    assert_same(loss, expected)
    (loss * weights).sum().backward()
    assert_same(local_logits.grad[..., : shard.num_real], local(logits.grad)[..., : shard.num_real])
    assert not local_logits.grad[..., shard.num_real :].any()
    return loss.detach()


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_loss_and_gradient_equal_dense_and_all_ranks_agree(tp):
    results = run_world(every_case, tp, check_loss, [(101, 104), (101, 512), (128, 128)], [0.0, 0.1], [1.0, 1000.0])
    for losses in zip(*results):
        assert all(torch.equal(loss, losses[0]) and loss.isfinite().all() for loss in losses)


def alone(vocab_size, padded_size):
    group = Group.single("tp")
    return VocabularyShard.of(vocab_size, padded_size, group), group


def test_label_smoothing_is_pytorchs():
    logits, labels = random(5, 3, 11), torch.arange(15).view(5, 3) % 11
    loss = vocab_parallel_cross_entropy(logits.clone(), labels, *alone(11, 11), 0.2)
    expected = F.cross_entropy(logits.view(15, 11), labels.view(15), label_smoothing=0.2, reduction="none").view(5, 3)
    assert_same(loss, expected)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_gradient_matches_finite_differences(label_smoothing):
    labels = torch.tensor([[0, 4], [2, 2]])
    shard, group = alone(5, 8)
    weights = random(2, 2, seed=1)

    def loss(logits):
        return (vocab_parallel_cross_entropy(logits.clone(), labels, shard, group, label_smoothing) * weights).sum()

    assert_gradient(loss, random(2, 2, 8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_inside_is_float32(dtype):
    logits, labels = random(64, 1, 4096).mul_(8).to(dtype).requires_grad_(), torch.arange(64).unsqueeze(1)
    loss = vocab_parallel_cross_entropy(logits.clone(), labels, *alone(4096, 4096))
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), dense(logits.detach().double(), labels, 0.0), rtol=1e-6, atol=1e-6)
    loss.sum().backward()
    assert logits.grad.dtype == dtype


def test_no_second_tensor_of_the_logits_size():
    logits = random(8, 2, 64).requires_grad_()
    made = logits.clone()
    place = made.data_ptr()
    places = []
    made.register_hook(lambda grad: places.append(grad.data_ptr()))
    vocab_parallel_cross_entropy(made, torch.zeros(8, 2, dtype=torch.int64), *alone(64, 64)).sum().backward()
    assert places == [place]


def test_a_second_backward_through_consumed_logits_is_refused():
    loss = vocab_parallel_cross_entropy(
        random(2, 2, 4).requires_grad_().clone(), torch.zeros(2, 2, dtype=torch.int64), *alone(4, 4)
    ).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def check_gathered(rank, world_size):
    tp = layer_context(rank, world_size).tp
    with pytest.raises(ConfigError, match=re.escape("this rank's 64 of the vocabulary's columns; given 128")):
        vocab_parallel_cross_entropy(
            random(2, 2, 128), torch.zeros(2, 2, dtype=torch.int64), VocabularyShard.of(101, 128, tp), tp
        )


def test_gathered_logits_are_refused():
    run_world(check_gathered, 2)


@pytest.mark.parametrize("wrong", [-1, 101, 127])
def test_labels_outside_the_vocabulary_are_refused(wrong):
    labels = torch.tensor([[3, wrong]])
    with pytest.raises(DataError, match=re.escape(f"labels must be in [0, 101), the vocabulary; given {wrong}")):
        vocab_parallel_cross_entropy(random(1, 2, 128), labels, *alone(101, 128))
