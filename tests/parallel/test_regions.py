"""Each region against its definition: forward by hand, and backward as its transpose over the whole world."""

import pytest
import torch

from megalite.parallel import regions
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from tests.harness import run_world

WORLD = 3


def _inputs(shape):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2 * WORLD)]


def _run(rank, world_size, name, shape, out_shape, options):
    group = ParallelContext(Mesh(tp=world_size), rank, torch.device("cpu")).group("tp")
    x = _inputs(shape)[rank].requires_grad_()
    y = getattr(regions, name)(x, group, **options)
    grad = _inputs(out_shape)[world_size + rank]
    y.backward(grad)
    return y.detach(), x.grad


def _sum(parts):
    return torch.stack(parts).sum(0)


def _part(x, rank, dim):
    return x.tensor_split(WORLD, dim)[rank]


# name, input shape, output shape, options, forward of all ranks' inputs, backward of all ranks' output gradients
CASES = [
    ("copy_to_tp", (6, 2, 3), (6, 2, 3), {}, lambda xs, r: xs[r], lambda gs, r: _sum(gs)),
    ("reduce_from_tp", (6, 2, 3), (6, 2, 3), {}, lambda xs, r: _sum(xs), lambda gs, r: gs[r]),
    ("scatter_to_tp", (2, 2, 6), (2, 2, 2), {}, lambda xs, r: _part(xs[r], r, -1), lambda gs, r: torch.cat(gs, -1)),
    ("gather_from_tp", (2, 2, 2), (2, 2, 6), {}, lambda xs, r: torch.cat(xs, -1), lambda gs, r: _part(gs[r], r, -1)),
    ("scatter_to_sp", (6, 2, 3), (2, 2, 3), {}, lambda xs, r: _part(xs[r], r, 0), lambda gs, r: torch.cat(gs)),
    ("gather_from_sp", (2, 2, 3), (6, 2, 3), {}, lambda xs, r: torch.cat(xs), lambda gs, r: _part(_sum(gs), r, 0)),
    (
        "gather_from_sp",
        (2, 2, 3),
        (6, 2, 3),
        {"partial_grad": False},
        lambda xs, r: torch.cat(xs),
        lambda gs, r: _part(gs[r], r, 0),
    ),
    (
        "reduce_scatter_to_sp",
        (6, 2, 3),
        (2, 2, 3),
        {},
        lambda xs, r: _part(_sum(xs), r, 0),
        lambda gs, r: torch.cat(gs),
    ),
]


@pytest.mark.parametrize("name, shape, out_shape, options, forward, backward", CASES)
def test_region_equals_its_definition(name, shape, out_shape, options, forward, backward):
    results = run_world(_run, WORLD, name, shape, out_shape, options)
    xs, gs = _inputs(shape)[:WORLD], _inputs(out_shape)[WORLD:]
    for rank, (y, grad) in enumerate(results):
        torch.testing.assert_close(y, forward(xs, rank), rtol=0, atol=1e-14)
        torch.testing.assert_close(grad, backward(gs, rank), rtol=0, atol=1e-14)
