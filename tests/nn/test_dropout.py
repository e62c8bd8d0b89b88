import pytest
import torch

from megalite.nn.context import LayerContext
from megalite.nn.dropout import Dropout
from megalite.ops import philox
from tests.harness import run_world
from tests.nn.world import layer_context, random, sequence_part

SEQUENCE, BATCH, WIDTH = 8, 3, 6
IDS = torch.tensor([5, 900, 2])
X = random(SEQUENCE, BATCH, WIDTH).abs() + 1


def dropped(ctx, ids=IDS, x=X, name="a"):
    return Dropout(name, 0.4, ctx)(x, {"sample_ids": ids})


def test_kept_elements_are_scaled_and_the_mask_is_that_of_the_element_in_the_run():
    y = dropped(LayerContext(dtype=torch.float64, seed=7))
    for position, sample, feature in [(0, 0, 0), (7, 1, 5), (3, 2, 4), (1, 1, 1)]:
        element = (int(IDS[sample]) * SEQUENCE + position) * WIDTH + feature
        word = int(philox.words(7, "dropout/a", torch.tensor(element // 8))[element // 2 % 4])
        half, threshold = word >> 16 if element % 2 else word & 0xFFFF, 26214  # 0.4 * 65536 = 26214.4
        expected = X[position, sample, feature].double() / (1 - threshold / 65536)
        if half < threshold:
            expected = torch.zeros_like(expected)
        torch.testing.assert_close(y[position, sample, feature], expected)
    assert 0 < int((y == 0).sum()) < y.numel()


def test_gradient_flows_through_the_same_mask():
    x = X.clone().requires_grad_()
    y = dropped(LayerContext(dtype=torch.float64), x=x)
    y.sum().backward()
    torch.testing.assert_close(x.grad * X, y.detach())


def test_micro_batch_does_not_show():
    ctx = LayerContext(dtype=torch.float64)
    parts = [dropped(ctx, IDS[at : at + 1], X[:, at : at + 1]) for at in (2, 0, 1)]
    assert torch.equal(torch.cat([parts[1], parts[2], parts[0]], dim=1), dropped(ctx))


def own_mask(rank, world_size, sequence_parallel):
    ctx = layer_context(rank, world_size, sequence_parallel)
    return dropped(ctx, x=sequence_part(X, ctx))


@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_and_sequence_parallelism_do_not_show(tp):
    whole = dropped(LayerContext(dtype=torch.float64, seed=7))
    for replica in run_world(own_mask, tp, False):
        assert torch.equal(replica, whole)
    assert torch.equal(torch.cat(run_world(own_mask, tp, True)), whole)


def test_sites_samples_and_seeds_have_different_masks():
    ctx = LayerContext(dtype=torch.float64)
    outputs = [
        dropped(ctx),
        dropped(ctx, name="b"),
        dropped(ctx, ids=IDS + 1),
        dropped(LayerContext(dtype=torch.float64, seed=1)),
    ]
    for at, first in enumerate(outputs):
        for second in outputs[at + 1 :]:
            assert not torch.equal(first == 0, second == 0)


def test_evaluation_and_probability_zero_change_nothing():
    ctx = LayerContext()
    assert Dropout("a", 0.4, ctx).eval()(X, {}) is X
    assert Dropout("a", 0.0, ctx)(X, {}) is X


def test_no_generator_is_touched():
    before = torch.get_rng_state()
    dropped(LayerContext(dtype=torch.float64))
    assert torch.equal(torch.get_rng_state(), before)
