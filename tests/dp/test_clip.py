import itertools
import math

import pytest
import torch

from megalite.dp import clip
from megalite.parallel.collectives import gather_objects
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from tests.dp import toy
from tests.dp.test_strategies import STRATEGIES
from tests.harness import run_world


def test_clip_coefficient():
    assert clip.clip_coefficient(norm=4.0, max_norm=1.0) == 1.0 / (4.0 + 1e-6)
    assert clip.clip_coefficient(norm=0.5, max_norm=1.0) == 1.0
    assert clip.clip_coefficient(norm=1e9, max_norm=0.0) == 1.0


def statistics(rank, tp, dp, name):
    context = ParallelContext(Mesh(tp=tp, dp=dp), rank, torch.device("cpu"))
    run = toy.Run(name, toy.tensor_parallel_params(context), context, toy.AT_THE_END)
    run.backward(0)
    for param in run.params:
        if param.spec.name == "final_norm.weight":
            param.main_grad.zero_()
    run.strategy.finish_reduce()
    slices = run.strategy.slices()
    norm = clip.params_norm(slices, run.optimizer.main_params(), context)
    return norm, clip.num_zeros(slices, context)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("tp, dp", [(1, 1), (2, 2), (3, 1), (1, 3)])
def test_parameter_norm_and_zeros_count_each_element_once(tp, dp, name):
    squares = sum(toy.make_param(toy.spec_of(key)).detach().square().sum() for key in toy.SHAPES)
    results = run_world(lambda rank, world: statistics(rank, tp, dp, name), tp * dp)
    assert len(set(results)) == 1
    assert results[0][0] == pytest.approx(math.sqrt(squares), rel=1e-13)
    assert results[0][1] == 6, "the six elements of the final norm, and no padding"


def non_finite_norms(rank, mesh, name, broken, value, sharded):
    context = ParallelContext(mesh, rank, torch.device("cpu"))
    params = toy.tensor_parallel_params(context) if sharded else toy.all_params()
    run = toy.Run(name, params, context, toy.AT_THE_END)
    run.backward(0)
    if rank == broken:
        run.params[-1].main_grad[0, 0] = value
    run.strategy.finish_reduce()
    norm = clip.grad_norm(run.strategy.slices(), context, 0.5)
    assert gather_objects(math.isfinite(norm), context.world) == [False] * mesh.world_size
    return norm


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_one_bad_gradient_on_one_rank_is_seen_by_all(name, value):
    for mesh, sharded in itertools.product((Mesh(tp=2), Mesh(dp=2), Mesh(pp=2)), (True, False)):
        run_world(lambda rank, world: non_finite_norms(rank, mesh, name, 1, value, sharded), 2)
