"""Training runs small enough for a grid, through the real engine, loader and step."""

from dataclasses import dataclass, field

import numpy as np
import torch

from megalite.config import Config, ModelConfig
from megalite.data.loader import BatchLoader
from megalite.data.sampler import microbatches
from megalite.optim.scaler import make_scaler
from megalite.parallel.collectives import gather_objects
from megalite.parallel.context import ParallelContext
from megalite.state import Box
from megalite.topology.mesh import Mesh
from megalite.train.engine import Engine, build_engine
from megalite.train.step import check_replicas, train_step
from tests.parity.data import RandomTokens

NUM_STEPS = 3
"""The last of them works with moments that two updates have left, decays parameters that have moved, and so on."""
BASE = Config(model=ModelConfig(num_layers=8, hidden_size=16, num_attention_heads=8, seq_length=12)).replace(
    fp64=True, lr=1e-2, min_lr=1e-3, weight_decay=0.1, clip_grad=0.5, train_iters=NUM_STEPS, num_workers=0, seed=11
)


@dataclass
class Run:
    """What a training run did, with the parameters put together from all ranks."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    params: dict[str, np.ndarray] = field(default_factory=dict)


def train(rank: int, world_size: int, config: Config) -> Run:
    """Train ``NUM_STEPS`` steps of ``config`` on this rank of the world; rank 0 returns the whole run."""
    parallel = config.parallel
    mesh = Mesh.from_world(world_size, parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size)
    context = ParallelContext(mesh, rank, torch.device("cpu"))
    engine = build_engine(config, context)
    run = train_steps(engine, NUM_STEPS)
    check_replicas(engine)
    run.params = gather_params(engine)
    return run


def train_steps(engine: Engine, num_steps: int, first: int = 0) -> Run:
    """``num_steps`` steps from step ``first`` on, at a learning rate that changes from step to step."""
    training, coords, mesh = engine.config.training, engine.context.coords, engine.context.mesh
    dataset = RandomTokens(engine.config.model.seq_length, engine.config.model.vocab_size)
    fields = engine.batch_fields - (set() if engine.config.data.reset_attention_mask else {"document_ids"})
    loader = BatchLoader(dataset, len(dataset), fields, torch.device("cpu"))
    scaler = make_scaler(training)
    run = Run()
    for step in range(first, first + num_steps):
        batch, micro = training.global_batch_size, training.micro_batch_size
        numbers = microbatches(step * batch, batch, micro, coords.dp, mesh.dp)
        outcome = train_step(engine, scaler, loader.load(numbers), lr=0.01 / (step + 1), weight_decay=0.1)
        run.losses.append(outcome.loss)
        run.grad_norms.append(outcome.grad_norm)
    return run


def gather_params(engine: Engine) -> dict[str, np.ndarray]:
    """Every parameter of the model as one array, from the boxes of all ranks; the same on every rank."""
    engine.strategy.wait_params()
    boxes = []
    for stage in engine.stages.values():
        for parameter in stage.parameters():
            spec = parameter.spec
            held = parameter.detach()[: spec.box.extent[0]]
            if held.dtype == torch.bfloat16:
                held = held.float()
            boxes.append((spec.name, spec.global_shape, spec.box, held.numpy()))
    whole: dict[str, np.ndarray] = {}
    for held in gather_objects(boxes, engine.context.world):
        for name, shape, box, values in held:
            array = whole.setdefault(name, np.full(shape, np.nan, values.dtype))
            array[box.inside(Box.whole(shape))] = values
    assert not any(np.isnan(array).any() for array in whole.values()), "some element of the model is on no rank"
    return whole
