import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from megalite.parallel import collectives as c
from megalite.parallel.context import ParallelContext
from megalite.parallel.group import Group
from megalite.topology.mesh import Mesh
from tests.harness import run_world


def _tp_group(rank, world_size):
    return ParallelContext(Mesh(tp=world_size), rank, torch.device("cpu")).group("tp")


def _all_collectives(rank, world_size):
    group = _tp_group(rank, world_size)
    mine = torch.arange(6.0) + 10 * rank
    parts = torch.empty(2), torch.empty(18)
    c.start_reduce_scatter_into(parts[0], mine, group).wait()
    c.start_all_gather_into(parts[1], mine, group).wait()
    return {
        "sum": c.all_reduce(mine.clone(), group),
        "max": c.all_reduce(mine.clone(), group, "max"),
        "gather": c.all_gather(mine, group),
        "scatter": c.reduce_scatter(mine, group),
        "scatter_into": parts[0],
        "gather_into": parts[1],
        "broadcast": c.broadcast(mine.clone(), group, source=2),
        "objects": c.gather_objects({"rank": rank}, group),
        "objects to": c.gather_objects_to("x" * (rank + 1), group, destination=1),
        "object": c.broadcast_object(f"from {rank}", group, source=1),
    }


def test_values_on_three_ranks():
    rows = [torch.arange(6.0) + 10 * rank for rank in range(3)]
    total = rows[0] + rows[1] + rows[2]
    for rank, got in enumerate(run_world(_all_collectives, 3)):
        assert got["sum"].equal(total) and got["max"].equal(rows[2])
        assert got["gather"].equal(torch.cat(rows)) and got["gather_into"].equal(torch.cat(rows))
        assert got["scatter"].equal(total[2 * rank : 2 * rank + 2]) and got["scatter_into"].equal(got["scatter"])
        assert got["broadcast"].equal(rows[2])
        assert got["objects"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}] and got["object"] == "from 1"
        assert got["objects to"] == (["x", "xx", "xxx"] if rank == 1 else None)


def test_a_group_of_one_communicates_nothing():
    group = Group.single("tp")
    mine = torch.arange(4.0)
    assert (
        c.all_reduce(mine, group) is mine
        and c.all_gather(mine, group) is mine
        and c.reduce_scatter(mine, group) is mine
    )
    assert c.gather_objects(1, group) == c.gather_objects_to(1, group) == [1] and c.broadcast_object(2, group) == 2
    into = torch.empty(4)
    c.start_all_gather_into(into, mine, group).wait()
    assert into.equal(mine)


def test_traffic_counts_payload_bytes_per_operation_and_axis():
    def count(rank, world_size):
        group = _tp_group(rank, world_size)
        c.all_reduce(torch.zeros(3), group)
        group.traffic.enabled = True
        c.all_reduce(torch.zeros(5), group)
        c.all_gather(torch.zeros(2, dtype=torch.float64), group)
        c.reduce_scatter(torch.zeros(8), group)
        return dict(group.traffic.bytes)

    expected = {("all_reduce", "tp"): 20, ("all_gather", "tp"): 16, ("reduce_scatter", "tp"): 32}
    assert run_world(count, 2) == [expected, expected]


def test_context_groups_follow_the_mesh():
    def ranks(rank, world_size):
        context = ParallelContext(Mesh(tp=2, dp=2, pp=2), rank, torch.device("cpu"))
        return [context.group(*axes).ranks for axes in (["tp"], ["dp"], ["pp"], ["tp", "pp"])] + [context.world.size]

    results = run_world(ranks, 8)
    assert results[5] == [(4, 5), (5, 7), (1, 5), (0, 1, 4, 5), 8]


def test_another_world_serves_a_thread_beside_the_first():
    """Rank 0's thread comes late to its collective; those of the main thread do not wait for it."""

    def train_beside(rank, world_size):
        context = ParallelContext(Mesh(dp=world_size), rank, torch.device("cpu"))
        beside = context.another_world("beside")
        begin = threading.Event()

        def gather():
            begin.wait()
            return c.gather_objects(rank, beside)

        with ThreadPoolExecutor(1) as pool:
            gathered = pool.submit(gather)
            if rank > 0:
                begin.set()
            total = sum(c.all_reduce(torch.ones(1), context.world).item() for _ in range(20))
            begin.set()
            return total, gathered.result(), beside.axis, beside.ranks

    assert run_world(train_beside, 3) == [(60, [0, 1, 2], "beside", (0, 1, 2))] * 3
    assert ParallelContext.single().another_world("beside").size == 1


def test_indivisible_scatter_is_our_bug_and_says_so():
    def scatter(rank, world_size):
        with pytest.raises(AssertionError, match=r"dim 0 of \(5,\) must be divisible by 2"):
            c.reduce_scatter(torch.zeros(5), _tp_group(rank, world_size))

    run_world(scatter, 2)
