import pytest
import torch

from megalite.nn.context import LayerContext
from megalite.nn.embedding import VocabParallelEmbedding
from megalite.nn.linear import ColumnParallelLinear, LinearOptions, RowParallelLinear
from megalite.nn.norm import LayerNorm, RMSNorm
from megalite.nn.vocabulary import VocabularyShard
from megalite.nn.wgrad import WeightGradQueue, accumulate
from tests.nn.world import random

X = random(4, 2, 6)


def make(kind, ctx):
    if kind in ("column", "row"):
        return {"column": ColumnParallelLinear, "row": RowParallelLinear}[kind]("a", 6, 6, ctx, LinearOptions(std=1.0))
    return {"layer_norm": LayerNorm, "rms_norm": RMSNorm}[kind]("a", 6, 1e-5, ctx)


def plain_grads(kind, times):
    layer = make(kind, LayerContext(dtype=torch.float64))
    for _ in range(times):
        (layer(X.clone().requires_grad_()) * X.sin()).sum().backward()
    return [param.grad for param in layer.parameters()]


def watch(layer, dtype=torch.float64):
    """Give every parameter a main gradient, and count what is reported."""
    seen = []
    for param in layer.parameters():
        param.main_grad = torch.zeros(param.shape, dtype=dtype)
        param.grad_hook = lambda param: seen.append(param.spec.name)
    return seen


@pytest.mark.parametrize("kind", ["column", "row", "layer_norm", "rms_norm"])
def test_main_grads_add_up_in_place_and_are_reported_once_each(kind):
    layer = make(kind, LayerContext(dtype=torch.float64))
    seen = watch(layer)
    kept = [param.main_grad for param in layer.parameters()]
    for _ in range(3):
        (layer(X.clone().requires_grad_()) * X.sin()).sum().backward()
    for param, main_grad, expected in zip(layer.parameters(), kept, plain_grads(kind, 3)):
        assert param.grad is None and param.main_grad is main_grad
        torch.testing.assert_close(main_grad, expected)
    assert sorted(seen) == sorted(3 * [param.spec.name for param in layer.parameters()])


@pytest.mark.parametrize("kind", ["column", "row", "layer_norm", "rms_norm"])
def test_bfloat16_gradients_add_up_in_float32(kind):
    layer = make(kind, LayerContext(dtype=torch.bfloat16))
    watch(layer, torch.float32)
    x = X.bfloat16()
    for _ in range(256):  # in bfloat16 the sum would stop growing at 256 x its increment
        (layer(x.clone().requires_grad_()) * x.sin()).sum().backward()
    sums = [param.main_grad.clone() for param in layer.parameters()]
    layer.zero_grad()
    watch(layer, torch.float32)
    (layer(x.clone().requires_grad_()) * x.sin()).sum().backward()
    for total, param in zip(sums, layer.parameters()):
        torch.testing.assert_close(total, 256 * param.main_grad, rtol=1e-5, atol=1e-5)


def test_deferred_weight_gradients_come_when_their_closures_run():
    queue = WeightGradQueue()
    layer = make("column", LayerContext(dtype=torch.float64, wgrad=queue))
    seen = watch(layer)
    x = X.clone().requires_grad_()
    with queue.deferred() as closures:
        (layer(x) * X.sin()).sum().backward()
        assert x.grad is not None and seen == []
    (layer(X) * X.sin()).sum().backward()
    assert sorted(seen) == ["a.bias", "a.weight"]
    for closure in closures:
        closure()
    assert sorted(seen) == ["a.bias", "a.bias", "a.weight", "a.weight"]
    for param, expected in zip(layer.parameters(), plain_grads("column", 2)):
        torch.testing.assert_close(param.main_grad, expected)


def test_queue_runs_at_once_again_after_a_failure_while_deferring():
    queue, ran = WeightGradQueue(), []
    with pytest.raises(KeyError), queue.deferred():
        raise KeyError
    queue.submit(lambda: ran.append(1))
    assert ran == [1]


def test_embedding_adds_rows_into_the_main_gradient():
    embedding = VocabParallelEmbedding("a", 4, 1.0, VocabularyShard(10, 0, 16), LayerContext(dtype=torch.bfloat16))
    seen = watch(embedding, torch.float32)
    ids = torch.tensor([[1, 1, 9], [0, 1, 9]])
    embedding(ids).sum().backward()
    expected = torch.zeros(16, 4)
    expected[0], expected[1], expected[9] = 1, 3, 2
    assert torch.equal(embedding.weight.main_grad, expected) and seen == ["a.weight"]


def test_accumulate_creates_a_gradient_where_there_is_no_main_gradient():
    param = torch.nn.Parameter(torch.ones(3))
    accumulate(param, lambda total: total.add_(2))
    accumulate(param, lambda total: total.add_(3))
    assert torch.equal(param.grad, torch.full((3,), 5.0))
