"""Mixed precision: what is accumulated, kept and copied where, and steps that are skipped."""

import math

import pytest
import torch

from megalite.config import TrainingConfig
from megalite.dp import clip
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from tests.dp import toy
from tests.dp.test_strategies import STRATEGIES
from tests.harness import run_world

LOW = [torch.bfloat16, torch.float16]


def new_run(rank, mesh, name, dtype):
    context = ParallelContext(mesh, rank, torch.device("cpu"))
    return toy.Run(name, toy.all_params(dtype), context, toy.AT_THE_END)


def owned_values(run, slot):
    """The owned elements of a slot, concatenated in the order of names."""
    entries = [entry for entry in run.optimizer.state_entries(owned_only=True) if entry.slot == slot]
    return {(entry.spec.name, entry.start): entry.tensor.clone() for entry in entries}


@pytest.mark.parametrize("name", STRATEGIES)
def test_micro_batches_and_ranks_add_up_in_float32(name):
    # 256 + 1 is 256 in bfloat16
    def add(rank, dp):
        run = new_run(rank, Mesh(dp=dp), name, torch.bfloat16)
        run.strategy.begin_step(2)
        for value in (256.0, 1.0) if rank == 0 else (65536.0, 1.0):
            for param in run.params:
                toy.accumulate(param, lambda main: main.add_(torch.full_like(main, value, dtype=torch.bfloat16)))
        run.strategy.finish_reduce()
        values = [flat.grad[s.offset : s.offset + s.numel] for flat in run.strategy.slices() for s in flat.segments]
        return set(torch.cat(values).tolist())

    assert run_world(add, 2) == [{65536.0 + 256.0 + 2.0}] * 2


@pytest.mark.parametrize("dtype", LOW)
def test_main_parameters_keep_what_the_model_rounds_away(dtype):
    run = new_run(0, Mesh(), "replicated", dtype)
    mains = run.optimizer.main_params()
    before = [main.clone() for main in mains]
    run.step(0)
    assert all(main.dtype == torch.float32 for main in mains)
    for flat, main, old in zip(run.strategy.slices(), mains, before):
        assert torch.equal(flat.param, main.to(dtype)) and not torch.equal(flat.param.float(), main)
        assert not torch.equal(main, old)


@pytest.mark.parametrize("dtype", [*LOW, torch.float32])
def test_strategies_are_bitwise_equal_at_two_ranks(dtype):
    # two summands have one sum, so reduce-scatter and all-reduce must agree to the last bit
    def train(rank, dp):
        runs = [new_run(rank, Mesh(dp=dp), name, dtype).train() for name in STRATEGIES]
        return [(run.values(), run.norms) for run in runs]

    results = [run for rank in run_world(train, 2) for run in rank]
    values, norms = results[0]
    for other_values, other_norms in results:
        assert other_norms == norms
        assert all(torch.equal(other_values[key], values[key]) for key in values)


def test_a_loaded_main_parameter_reaches_the_model_and_a_loaded_model_the_main_ones():
    def load(rank, dp):
        run = new_run(rank, Mesh(dp=dp), "zero1", torch.bfloat16)
        for entry in run.optimizer.state_entries():
            if entry.slot == "param":
                entry.tensor.fill_(1.5)
        run.optimizer.refresh_params()
        run.strategy.publish()
        assert all((param == 1.5).all() for param in run.params)
        for param in run.params:
            param.data.fill_(2.5)
        run.optimizer.refresh_main_params()
        assert all((values == 2.5).all() for values in owned_values(run, "param").values())
        return True

    assert run_world(load, 2) == [True, True]


def fp16_steps(rank, mesh, name, overflows):
    """Steps under a dynamic loss scale, in which rank 1 alone overflows at the given ones."""
    run = new_run(rank, mesh, name, torch.float16)
    scaler = make_scaler(TrainingConfig(fp16=True, initial_loss_scale=8.0, loss_scale_window=3, hysteresis=1))
    history = []
    for step in range(6):
        run.strategy.wait_params()
        run.backward(step % toy.STEPS)
        if step in overflows and rank == 1:
            run.params[-1].main_grad[0, 0] = math.inf
        run.strategy.finish_reduce()
        norm = clip.grad_norm(run.strategy.slices(), run.context, 1 / toy.SAMPLES)
        before = {**run.values(), **owned_values(run, "exp_avg")}
        overflow = not math.isfinite(norm)
        if not overflow:
            run.optimizer.step(toy.LR, toy.WEIGHT_DECAY, clip.clip_coefficient(norm, toy.CLIP) / toy.SAMPLES)
            run.strategy.publish()
        after = {**run.values(), **owned_values(run, "exp_avg")}
        moved = any(not torch.equal(before[key], after[key]) for key in before)
        scaler.update(overflow)
        history.append((overflow, moved, scaler.scale, run.optimizer.num_updates))
    return history, run.values()


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("mesh", [Mesh(dp=2), Mesh(pp=2)])
def test_all_ranks_skip_together_and_nothing_moves(name, mesh):
    (history, values), (other_history, other_values) = run_world(
        lambda rank, world: fp16_steps(rank, mesh, name, {0, 2}), 2
    )
    assert history == other_history
    assert history == [
        (True, False, 4.0, 0),
        (False, True, 4.0, 1),
        (True, False, 2.0, 1),
        (False, True, 2.0, 2),
        (False, True, 2.0, 3),
        (False, True, 4.0, 4),
    ]
    if mesh.dp == 2:
        assert all(torch.equal(values[key], other_values[key]) for key in values)


def test_state_is_complete_before_the_first_update():
    run = new_run(0, Mesh(), "replicated", torch.float16)
    names = {(entry.slot, entry.spec.name) for entry in run.optimizer.state_entries()}
    assert names == {(slot, name) for slot in ("param", "exp_avg", "exp_avg_sq") for name in toy.SHAPES}


def test_only_matrices_decay_wherever_slices_end():
    # one step with zero gradients at lr 0.01, decay 0.5: Adam adds nothing, so decay alone is seen
    def decay(rank, dp):
        context = ParallelContext(Mesh(dp=dp), rank, torch.device("cpu"))
        run = toy.Run("zero1", toy.all_params(), context)
        before = run.values()
        run.strategy.begin_step(1)
        run.strategy.finish_reduce()
        run.optimizer.step(lr=0.01, weight_decay=0.5, grad_factor=1.0)
        run.strategy.publish()
        return {key: (run.values()[key] / before[key]).unique().tolist() for key in before}

    for ratios in run_world(decay, 3):
        for key, shape in toy.SHAPES.items():
            assert ratios[key] == pytest.approx([0.995] * len(ratios[key]) if len(shape) > 1 else [1.0], rel=1e-14), key
