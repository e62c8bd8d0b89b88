from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from megalite.nn import linear
from megalite.nn.context import LayerContext
from megalite.nn.linear import ColumnParallelLinear, LinearOptions, RowParallelLinear
from megalite.parallel.collectives import all_reduce
from tests.harness import run_world
from tests.nn.world import assert_same, every_case, fill, layer_context, own, random, sequence_part

TP = pytest.mark.parametrize("tp", [1, 2, 4])
SEQUENCE_PARALLEL = [False, True]
SEQUENCE, BATCH, WIDTH = 8, 3, 12


def features(x, ctx):
    return x.chunk(ctx.tp.size, dim=-1)[ctx.tp.rank]


def leaf(x):
    return x.detach().clone().requires_grad_()


def check_column(rank, world_size, sequence_parallel, shape):
    out_shape, shard_dim = shape
    ctx = layer_context(rank, world_size, sequence_parallel)
    layer = ColumnParallelLinear("a", WIDTH, out_shape, ctx, shard_dim=shard_dim)
    weight, bias = fill(layer.weight, 1), fill(layer.bias, 2)
    x, coefficients = (
        random(SEQUENCE, BATCH, WIDTH, seed=3).requires_grad_(),
        random(SEQUENCE, BATCH, *out_shape, seed=4),
    )
    y = F.linear(x, weight.view(-1, WIDTH), bias.view(-1)).unflatten(-1, out_shape)
    (y * coefficients).sum().backward()

    local_x = leaf(sequence_part(x, ctx))
    local_y = layer(local_x)

    def part(whole):
        return whole.chunk(world_size, dim=2 + shard_dim)[rank].flatten(2)

    assert_same(local_y, part(y))
    (local_y * part(coefficients)).sum().backward()
    assert_same(local_x.grad, sequence_part(x.grad, ctx))
    assert_same(layer.weight.grad, own(weight.grad, layer.weight))
    assert_same(layer.bias.grad, own(bias.grad, layer.bias))


@TP
def test_column_parallel_equals_dense(tp):
    run_world(every_case, tp, check_column, SEQUENCE_PARALLEL, [((8,), 0), ((4, 3, 2), 0), ((2, 8), 1)])


def check_gathered_column(rank, world_size, sequence_parallel):
    ctx = layer_context(rank, world_size, sequence_parallel)
    layer = ColumnParallelLinear("a", WIDTH, 8, ctx, LinearOptions(gather_output=True))
    weight, bias = fill(layer.weight, 1), fill(layer.bias, 2)
    x, coefficients = random(SEQUENCE, BATCH, WIDTH, seed=3).requires_grad_(), random(SEQUENCE, BATCH, 8, seed=4)
    y = F.linear(x, weight, bias)
    (y * coefficients).sum().backward()
    local_x = leaf(sequence_part(x, ctx))
    local_y = layer(local_x)
    assert_same(local_y, y)
    (local_y * coefficients).sum().backward()
    assert_same(local_x.grad, sequence_part(x.grad, ctx))
    assert_same(layer.weight.grad, own(weight.grad, layer.weight))


def test_gathered_output_is_whole_on_every_rank():
    run_world(every_case, 4, check_gathered_column, SEQUENCE_PARALLEL)


def check_row(rank, world_size, sequence_parallel, input_is_parallel):
    ctx = layer_context(rank, world_size, sequence_parallel)
    layer = RowParallelLinear("a", WIDTH, 5, ctx, LinearOptions(input_is_parallel=input_is_parallel))
    weight, bias = fill(layer.weight, 1), fill(layer.bias, 2)
    x, coefficients = random(SEQUENCE, BATCH, WIDTH, seed=3).requires_grad_(), random(SEQUENCE, BATCH, 5, seed=4)
    y = F.linear(x, weight, bias)
    (y * coefficients).sum().backward()

    local_x = leaf(features(x, ctx) if input_is_parallel else x)
    local_y = layer(local_x)
    assert_same(local_y, sequence_part(y, ctx))
    (local_y * sequence_part(coefficients, ctx)).sum().backward()
    assert_same(local_x.grad, features(x.grad, ctx) if input_is_parallel else x.grad)
    assert_same(layer.weight.grad, own(weight.grad, layer.weight))
    bias_grad = all_reduce(layer.bias.grad, ctx.tp) if layer.bias.spec.reduce_axes else layer.bias.grad
    assert layer.bias.spec.reduce_axes == (("tp",) if sequence_parallel and world_size > 1 else ())
    assert_same(bias_grad, bias.grad)


@TP
def test_row_parallel_equals_dense_with_its_bias_added_once(tp):
    run_world(every_case, tp, check_row, SEQUENCE_PARALLEL, [True])


@TP
def test_row_parallel_splits_a_whole_input(tp):
    run_world(check_row, tp, False, False)


def check_skipped_bias(rank, world_size, sequence_parallel):
    ctx = layer_context(rank, world_size, sequence_parallel)
    options = LinearOptions(skip_bias_add=True)
    column, row = ColumnParallelLinear("a", WIDTH, 8, ctx, options), RowParallelLinear("b", 8, WIDTH, ctx, options)
    whole = {layer: (fill(layer.weight, seed), fill(layer.bias, seed + 1)) for seed, layer in ((1, column), (3, row))}
    x, coefficients = random(SEQUENCE, BATCH, WIDTH, seed=5), random(SEQUENCE, BATCH, WIDTH, seed=6)
    y = F.linear(F.linear(x, *whole[column]), *whole[row])
    (y * coefficients).sum().backward()

    inner, bias = column(sequence_part(x, ctx))
    outer, outer_bias = row(inner + bias)
    local_y = outer + outer_bias
    assert_same(local_y, sequence_part(y, ctx))
    (local_y * sequence_part(coefficients, ctx)).sum().backward()
    for layer, (weight, bias) in whole.items():
        assert_same(layer.weight.grad, own(weight.grad, layer.weight))
        grad = all_reduce(layer.bias.grad, ctx.tp) if layer.bias.spec.reduce_axes else layer.bias.grad
        assert_same(grad, own(bias.grad, layer.bias))


def test_skipped_bias_is_returned_and_learns():
    run_world(every_case, 2, check_skipped_bias, SEQUENCE_PARALLEL)


def test_input_gradient_matches_finite_differences():
    for layer in (
        ColumnParallelLinear("a", 3, 4, LayerContext(dtype=torch.float64)),
        RowParallelLinear("a", 3, 4, LayerContext(dtype=torch.float64)),
    ):
        assert torch.autograd.gradcheck(layer, (random(2, 2, 3).requires_grad_(),))


def test_no_bias_means_no_parameter():
    layer = RowParallelLinear("a", 4, 4, LayerContext(), LinearOptions(bias=False))
    assert [param.spec.name for param in layer.parameters()] == ["a.weight"]


def order_of_backward(rank, world_size, sequence_parallel):
    """What the backward of a column-parallel layer does, in order."""
    events = []

    def watched(start, name):
        def begin(*args):
            events.append(f"start {name}")
            started = start(*args)
            handle = started[-1] if isinstance(started, tuple) else started
            watch = SimpleNamespace(wait=lambda: (events.append(f"wait {name}"), handle.wait()))
            return (*started[:-1], watch) if isinstance(started, tuple) else watch

        return begin

    for name in ("start_all_gather", "start_all_reduce", "start_reduce_scatter"):
        setattr(linear, name, watched(getattr(linear, name), name.removeprefix("start_")))
    ctx = layer_context(rank, world_size, sequence_parallel)
    layer = ColumnParallelLinear("a", WIDTH, 8, ctx)
    layer.weight.grad_hook = lambda param: events.append("weight gradient")
    layer(random(SEQUENCE, BATCH, WIDTH).requires_grad_()).sum().backward()
    return events


def test_the_weight_gradient_is_computed_while_the_input_gradient_is_reduced():
    for events in run_world(order_of_backward, 2, False):
        assert events == ["start all_reduce", "weight gradient", "wait all_reduce"]
    for events in run_world(order_of_backward, 2, True):
        assert events == [
            "start all_gather",
            "wait all_gather",
            "start reduce_scatter",
            "weight gradient",
            "wait reduce_scatter",
        ]
