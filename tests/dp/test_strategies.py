"""Every strategy trains like one process, at every number of ranks, with and without overlap."""

import itertools

import pytest
import torch

from megalite.config import ParallelConfig
from megalite.parallel.context import ParallelContext
from megalite.plugins import available
from megalite.topology.mesh import Mesh
from tests.dp import toy
from tests.harness import run_world

STRATEGIES = available("megalite.dp.strategies")
RULES = available("megalite.optim.rules")


def close(actual, expected, rtol=1e-12):
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=1e-13)


def configs():
    for reduce, gather in itertools.product((False, True), (False, True)):
        yield ParallelConfig(overlap_grad_reduce=reduce, overlap_param_gather=gather, ddp_bucket_size=200)


def train_all(rank, dp, rule, configs):
    context = ParallelContext(Mesh(dp=dp), rank, torch.device("cpu"))
    runs = {}
    for name, config in itertools.product(STRATEGIES, configs):
        run = toy.Run(name, toy.all_params(), context, config, rule=rule).train()
        runs.setdefault(name, []).append((run.values(), run.norms))
    return runs


def check(rule, dp, configs):
    values, norms = toy.one_process(rule)
    assert norms[0] > toy.CLIP, "the case must clip"
    ranks = run_world(train_all, dp, rule, configs)
    for name in STRATEGIES:
        first_values, first_norms = ranks[0][name][0]
        close(first_values, values)
        close(first_norms, norms)
        for run_values, run_norms in (run for rank in ranks for run in rank[name]):
            # bitwise: overlap is how, not what, and replicas are equal
            assert run_norms == first_norms
            assert all(torch.equal(run_values[key], first_values[key]) for key in values)


@pytest.mark.parametrize("dp", [1, 2, 3, 5])
def test_equal_to_one_process_with_and_without_overlap(dp):
    check("adam", dp, list(configs()))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_equals_one_process(rule):
    check(rule, 3, [ParallelConfig(ddp_bucket_size=200)])
