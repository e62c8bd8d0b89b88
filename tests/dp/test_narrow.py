"""Gradients summed over the data-parallel ranks in bfloat16: what is rounded, what is not, and what is sent."""

import itertools

import pytest
import torch

from megalite.config import ParallelConfig
from megalite.dp.buckets import ALIGNMENT
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from tests.dp import toy
from tests.dp.test_strategies import STRATEGIES
from tests.harness import run_world


def new_run(rank, dp, name, **options):
    context = ParallelContext(Mesh(dp=dp), rank, torch.device("cpu"))
    config = ParallelConfig(ddp_bucket_size=200, **options)
    return toy.Run(name, toy.all_params(torch.bfloat16), context, config, reduce_dtype=torch.bfloat16)


def summed(rank, dp, name, values):
    """What the gradients become when each rank's micro-batches bring ``values[rank]`` for every element."""
    run = new_run(rank, dp, name)
    run.strategy.begin_step(len(values[rank]))
    for value in values[rank]:
        for param in reversed(run.params):
            toy.accumulate(param, lambda main: main.add_(torch.full_like(main, value, dtype=torch.bfloat16)))
    run.strategy.finish_reduce()
    slices = run.strategy.slices()
    assert all(flat.grad.dtype == torch.float32 for flat in slices)
    return set(torch.cat([flat.grad[s.offset : s.offset + s.numel] for flat in slices for s in flat.segments]).tolist())


@pytest.mark.parametrize("name", STRATEGIES)
def test_micro_batches_add_up_in_float32_and_ranks_in_bfloat16(name):
    # 256 + 1 is 256 in bfloat16, whose next number is 258: only float32 can see the ones of a rank
    assert run_world(summed, 2, name, [(256.0, 1.0, 1.0), (0.0, 0.0, 0.0)]) == [{258.0}] * 2
    assert run_world(summed, 2, name, [(256.0,), (1.0,)]) == [{256.0}] * 2
    assert summed(0, 1, name, [(256.0, 1.0)]) == {257.0}, "a single rank sends and rounds nothing"


def traffic_of_a_step(rank, dp, name):
    run = new_run(rank, dp, name)
    run.context.traffic.enabled = True
    run.step(0)
    return dict(run.context.traffic.bytes), sum(bucket.param.numel() for bucket in run.strategy.buckets)


def test_gradients_are_sent_in_two_bytes_an_element():
    for name, operation in (("zero1", "reduce_scatter"), ("replicated", "all_reduce")):
        for traffic, elements in run_world(traffic_of_a_step, 3, name):
            assert traffic[operation, "dp"] == 2 * elements and elements % (3 * ALIGNMENT) == 0


def train_all(rank, dp):
    runs = []
    for name, overlap in itertools.product(STRATEGIES, (False, True)):
        run = new_run(rank, dp, name, overlap_grad_reduce=overlap).train()
        runs.append((run.values(), run.norms))
    return runs


def test_strategies_and_overlap_are_bitwise_equal_and_near_the_float32_sum():
    values, norms = toy.one_process()
    for runs in run_world(train_all, 2):
        first_values, first_norms = runs[0]
        for run_values, run_norms in runs:
            assert run_norms == first_norms
            assert all(torch.equal(run_values[key], first_values[key]) for key in values)
        assert first_norms == pytest.approx(norms, rel=1e-2)

