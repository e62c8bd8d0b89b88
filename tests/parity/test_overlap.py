"""Overlap and sharding are how, not what: over many steps not a bit changes, whatever the order of the parameters."""

import pytest
import torch

from megalite.parallel.context import ParallelContext
from megalite.pipeline.stage import parameters_of
from megalite.topology.mesh import Mesh
from megalite.train import engine as engines
from tests.harness import run_world
from tests.parity.run import BASE, train_steps

STEPS = 8
CONFIG = BASE.replace(
    fp64=False,
    num_layers=2,
    vocab_size=101,
    global_batch_size=8,
    micro_batch_size=2,
    hidden_dropout=0.1,
    ddp_bucket_size=600,
)
SHARDED = {"use_distributed_optimizer": True}
WAYS = [
    {"overlap_grad_reduce": False},
    SHARDED | {"overlap_grad_reduce": False, "overlap_param_gather": False},
    SHARDED | {"overlap_grad_reduce": True, "overlap_param_gather": True},
]
LAYOUTS = {
    "tp2 with 4 micro-batches, a data-parallel group of one": (2, {"tensor_model_parallel_size": 2}),
    "dp2": (2, {}),
    "pp2 with 2 virtual stages, dp2": (
        4,
        {"pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 2, "num_layers": 4},
    ),
}


def curves(rank, world_size, layout):
    """Losses and norms of the steps in every way."""
    config = CONFIG.replace(**layout)
    parallel = config.parallel
    mesh = Mesh.from_world(world_size, parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size)
    runs = []
    for way in WAYS:
        engine = engines.build_engine(config.replace(**way), ParallelContext(mesh, rank, torch.device("cpu")))
        runs.append(train_steps(engine, STEPS))
    return [(run.losses, run.grad_norms) for run in runs]


def check(world_size, layout):
    for (losses, norms), *sharded in run_world(curves, world_size, layout):
        assert len(set(losses)) == STEPS
        assert [own_losses for own_losses, _ in sharded] == [losses] * 2
        # The norm adds up its squares in another order where ranks have slices.
        assert sharded[0][1] == sharded[1][1] == pytest.approx(norms, rel=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_steps_are_the_same_to_the_bit(layout):
    check(*LAYOUTS[layout])


def test_buckets_in_another_order_than_that_of_the_forward_pass_are_awaited_too(monkeypatch):
    monkeypatch.setattr(engines, "parameters_of", lambda stages: parameters_of(stages)[::-1])
    check(*LAYOUTS["dp2"])
