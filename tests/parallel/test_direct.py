"""Exchanges by direct messages: values, places, order, and what they cost in memory."""

import pytest
import torch

from megalite.parallel import direct
from megalite.parallel.collectives import start_all_gather_into, start_reduce_scatter_into
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from tests.harness import run_world

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64]


def group_of(rank, world_size):
    return ParallelContext(Mesh(dp=world_size), rank, torch.device("cpu")).group("dp")


def values(rank, size, dtype, number=0):
    """Small whole numbers, whose sums are exact in every dtype."""
    return (torch.arange(size) % 7 + 3 * rank + number).to(dtype)


def exchange(rank, world_size):
    group, size = group_of(rank, world_size), 4 * world_size
    own = slice(4 * rank, 4 * rank + 4)
    for dtype in DTYPES:
        all_values = [values(other, size, dtype) for other in range(world_size)]
        total = torch.stack(all_values).sum(0)
        in_place, apart = all_values[rank].clone(), torch.empty(4, dtype=dtype)
        direct.start_reduce_scatter(in_place[own], in_place, group).wait()
        direct.start_reduce_scatter(apart, all_values[rank], group).wait()
        assert torch.equal(in_place[own], total[own]) and torch.equal(apart, total[own])
        gathered = [torch.zeros(size, dtype=dtype) for _ in range(2)]
        gathered[0][own] = total[own]
        direct.start_all_gather(gathered[0], gathered[0][own], group).wait()
        direct.start_all_gather(gathered[1], apart, group).wait()
        assert torch.equal(gathered[0], total) and torch.equal(gathered[1], total)
    return True


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_sums_and_gathers_in_place_and_apart(world_size):
    assert all(run_world(exchange, world_size))


def many(rank, world_size):
    """Several exchanges under way at a time, awaited in another order on each rank, twice."""
    group = group_of(rank, world_size)
    sizes = [world_size * 2**k for k in range(8)]
    tensors = [values(rank, size, torch.float32, number) for number, size in enumerate(sizes)]
    parts = [tensor.chunk(world_size)[rank] for tensor in tensors]
    started = []
    for tensor, part in zip(tensors, parts):
        started.append(start_reduce_scatter_into(part, tensor, group))
    for index in range(8):
        started[(index + 3 * rank) % 8].wait()
        started[(index + 3 * rank) % 8].wait()
    gathers = [start_all_gather_into(tensor, part, group) for tensor, part in zip(tensors, parts)]
    for handle in reversed(gathers):
        handle.wait()
    for number, (size, tensor) in enumerate(zip(sizes, tensors)):
        expected = sum(values(other, size, torch.float32, number) for other in range(world_size))
        assert torch.equal(tensor, expected)
    return True


def test_many_exchanges_are_told_apart_by_their_order():
    assert all(run_world(many, 3))


def test_parts_must_fit_the_whole():
    with pytest.raises(AssertionError, match="5 elements are not 2 x 2"):
        run_world(lambda rank, world: direct.start_all_gather(torch.zeros(5), torch.zeros(2), group_of(rank, world)), 2)
