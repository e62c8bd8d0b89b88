"""16-bit runs: bitwise equal where the arithmetic is the same, close to float32 where not, safe where it overflows."""

import math

import numpy as np
import pytest
import torch

from megalite.config import Config
from megalite.data.loader import BatchLoader
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.pipeline.stage import parameters_of
from megalite.topology.mesh import Mesh
from megalite.train.engine import Engine, build_engine
from megalite.train.step import check_replicas, train_step
from tests.harness import run_world
from tests.parity.data import RandomTokens
from tests.parity.run import BASE, train

HALF = BASE.replace(
    fp64=False, num_layers=2, vocab_size=101, global_batch_size=8, micro_batch_size=2, ddp_bucket_size=1000
)
PRECISIONS = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True, "initial_loss_scale": 1024.0},
    "bf16, fp32 residual": {"bf16": True, "fp32_residual_connection": True},
    "bf16, bf16 reduction": {"bf16": True, "grad_reduce_in_bf16": True},
}


def _assert_bitwise(got, expected):
    assert got.losses == expected.losses and got.grad_norms == expected.grad_norms
    for name, values in expected.params.items():
        np.testing.assert_array_equal(got.params[name], values, err_msg=name)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("layout", [{}, {"tensor_model_parallel_size": 2}, {"pipeline_model_parallel_size": 2}])
def test_zero1_equals_the_replicated_strategy_bit_for_bit(precision, layout):
    config = HALF.replace(**PRECISIONS[precision], **layout)
    world_size = 2 * math.prod(layout.values())
    replicated = run_world(train, world_size, config)[0]
    sharded = run_world(train, world_size, config.replace(use_distributed_optimizer=True, overlap_param_gather=True))[0]
    _assert_bitwise(sharded, replicated)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "bf16, fp32 residual"])
def test_recomputation_repeats_the_forward_bit_for_bit(precision):
    config = HALF.replace(**PRECISIONS[precision])
    plain = run_world(train, 1, config)[0]
    for granularity in ("full", "selective"):
        _assert_bitwise(run_world(train, 1, config.replace(recompute_granularity=granularity))[0], plain)


@pytest.mark.parametrize("precision, tolerance", [("bf16", 1e-2), ("fp16", 1e-3), ("bf16, fp32 residual", 5e-3)])
def test_losses_stay_close_to_float32(precision, tolerance):
    exact = run_world(train, 1, HALF)[0]
    half = run_world(train, 1, HALF.replace(**PRECISIONS[precision]))[0]
    np.testing.assert_allclose(half.losses, exact.losses, rtol=tolerance)
    assert half.losses != exact.losses


def _engine(rank: int, world_size: int, config: Config) -> tuple[Engine, BatchLoader]:
    parallel = config.parallel
    mesh = Mesh.from_world(world_size, parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size)
    engine = build_engine(config, ParallelContext(mesh, rank, torch.device("cpu")))
    data = RandomTokens(config.model.seq_length, config.model.vocab_size)
    return engine, BatchLoader(data, len(data), engine.batch_fields - {"document_ids"}, torch.device("cpu"))


def _overflowing(rank: int, world_size: int, config: Config) -> dict:
    """Steps at a loss scale that overflows float16, until it has come down far enough."""
    engine, loader = _engine(rank, world_size, config)
    scaler = make_scaler(config.training)
    before = [flat.clone() for flat in engine.optimizer.main_params()]
    batches = loader.load([range(0, 2), range(4, 6)])
    scales, updated = [], []
    while not updated or not updated[-1]:
        outcome = train_step(engine, scaler, batches, lr=0.01, weight_decay=0.0)
        scales.append(outcome.loss_scale)
        updated.append(outcome.updated)
        if not outcome.updated:
            assert engine.optimizer.num_updates == 0
            assert all(map(torch.equal, engine.optimizer.main_params(), before)), "a skipped step moved parameters"
    return {"scales": scales, "updated": updated, "loss": outcome.loss}


def test_a_loss_scale_is_that_of_the_mean_loss(monkeypatch):
    config, norms = HALF.replace(fp16=True, loss_scale=256.0), []
    engine, loader = _engine(0, 1, config)
    finish = engine.strategy.finish_reduce

    def record():
        finish()
        norms.append(math.sqrt(sum(float(flat.grad.double().square().sum()) for flat in engine.strategy.slices())))

    monkeypatch.setattr(engine.strategy, "finish_reduce", record)
    batches = loader.load([range(0, 2), range(2, 4), range(4, 6)])
    outcome = train_step(engine, make_scaler(config.training), batches, lr=0.0, weight_decay=0.0)
    unmasked = outcome.num_tokens / (6 * config.model.seq_length)
    assert norms == [pytest.approx(256.0 * outcome.grad_norm * unmasked, rel=1e-5)]


@pytest.mark.parametrize("layout", [{}, {"tensor_model_parallel_size": 2}, {"pipeline_model_parallel_size": 2}])
def test_all_ranks_skip_overflowing_steps_together_and_recover(layout):
    config = HALF.replace(fp16=True, initial_loss_scale=2.0**32, hysteresis=1, use_distributed_optimizer=True, **layout)
    world_size = 2 * math.prod(layout.values())
    outcomes = run_world(_overflowing, world_size, config)
    assert all(outcome == outcomes[0] for outcome in outcomes)
    scales, updated = outcomes[0]["scales"], outcomes[0]["updated"]
    assert len(scales) > 3 and scales == [2.0 ** (32 - step) for step in range(len(scales))]
    assert updated == [False] * (len(updated) - 1) + [True] and math.isfinite(outcomes[0]["loss"])


def _overflowing_on_one_rank(rank: int, world_size: int, config: Config) -> list:
    """Four steps; in the second, one gradient of the last rank alone is infinite."""
    engine, loader = _engine(rank, world_size, config)
    scaler = make_scaler(config.training)
    parameter = parameters_of(engine.stages)[-1]
    arrived = parameter.grad_hook

    def spoil(parameter):
        parameter.main_grad.view(-1)[0] = math.inf
        arrived(parameter)

    seen = []
    for step in range(4):
        parameter.grad_hook = spoil if step == 1 and rank == world_size - 1 else arrived
        outcome = train_step(engine, scaler, loader.load([range(0, 2), range(4, 6)]), lr=0.01, weight_decay=0.0)
        check_replicas(engine)
        seen.append((outcome, scaler.scale, engine.optimizer.num_updates))
    return seen


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("axis", ["tensor_model_parallel_size", "pipeline_model_parallel_size", "data"])
def test_an_overflow_of_one_rank_is_an_overflow_of_all(axis, zero):
    config = HALF.replace(fp16=True, initial_loss_scale=64.0, hysteresis=1, use_distributed_optimizer=zero)
    if axis != "data":
        config = config.replace(**{axis: 2})
    first, second = run_world(_overflowing_on_one_rank, 2, config)
    assert [scale for _, scale, _ in first] == [64.0, 32.0, 32.0, 32.0]
    assert [updates for _, _, updates in first] == [1, 1, 2, 3]
    assert [outcome.updated for outcome, _, _ in first] == [True, False, True, True]
    assert str(first) == str(second), "the losses, norms and decisions of all ranks are the same"
