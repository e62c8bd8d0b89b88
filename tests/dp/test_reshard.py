"""State leaves one layout under its names and continues in another."""

import pytest
import torch

from megalite.parallel.context import ParallelContext
from megalite.state import Box
from megalite.topology.mesh import Mesh
from tests.dp import toy
from tests.dp.test_strategies import RULES, close
from tests.harness import run_world

HALF = toy.STEPS // 2


def box_of(spec):
    return spec.box.inside(Box.whole(spec.global_shape))


def save(rank, world, mesh, name, rule):
    """Parameters, and the owned state, of a run that stops halfway."""
    context = ParallelContext(mesh, rank, torch.device("cpu"))
    run = toy.Run(name, toy.tensor_parallel_params(context), context, rule=rule).train(HALF)
    params = [(param.spec, param.detach()[: param.spec.box.extent[0]].clone()) for param in run.params]
    entries = [(e.slot, e.spec, e.start, e.tensor.clone()) for e in run.optimizer.state_entries(owned_only=True)]
    return params, entries


def whole_tensors(ranks):
    params, state = {}, {}
    for spec, values in (piece for rank_params, _ in ranks for piece in rank_params):
        whole = params.setdefault(spec.name, torch.full(spec.global_shape, torch.nan, dtype=values.dtype))
        whole[box_of(spec)] = values
    for slot, spec, start, values in (entry for _, entries in ranks for entry in entries):
        whole = state.setdefault((slot, spec.name), torch.full(spec.global_shape, torch.nan, dtype=values.dtype))
        local = whole[box_of(spec)].flatten()
        local[start : start + values.numel()] = values
        whole[box_of(spec)] = local.view(spec.box.extent)
    assert not any(tensor.isnan().any() for tensor in [*params.values(), *state.values()])
    return params, state


def resume(rank, world, mesh, name, rule, params, state):
    context = ParallelContext(mesh, rank, torch.device("cpu"))
    run = toy.Run(name, toy.tensor_parallel_params(context), context, rule=rule)
    for param in run.params:
        param.data[: param.spec.box.extent[0]] = params[param.spec.name][box_of(param.spec)]
    for entry in run.optimizer.state_entries():
        entry.tensor.copy_(state[entry.slot, entry.spec.name][box_of(entry.spec)].flatten()[entry.start : entry.stop])
    run.optimizer.num_updates = HALF
    for step in range(HALF, toy.STEPS):
        run.step(step)
    return [(param.spec, param.detach()[: param.spec.box.extent[0]].clone()) for param in run.params], []


@pytest.mark.parametrize("rule", RULES)
def test_a_run_continues_at_another_layout(rule):
    saved = run_world(save, 4, Mesh(tp=2, dp=2), "zero1", rule)
    params, state = whole_tensors(saved)
    expected, _ = toy.one_process(rule)
    for mesh, name in ((Mesh(dp=3), "zero1"), (Mesh(tp=3), "replicated")):
        resumed = run_world(resume, mesh.world_size, mesh, name, rule, params, state)
        close(whole_tensors(resumed)[0], expected)
