"""The body of ``pretrain_gpt.py``: from a command line to a trained, saved and evaluated model."""

import os
from dataclasses import dataclass
from typing import Sequence

import torch

from megalite import plugins
from megalite.config import Config
from megalite.config.check import check
from megalite.config.cli import parse
from megalite.config.dump import summary
from megalite.config.settle import settle
from megalite.data.build import Datasets, build_datasets
from megalite.data.dataset import Dataset, Request
from megalite.data.loader import BatchLoader
from megalite.log import logger, setup_logging
from megalite.optim.scaler import make_scaler
from megalite.parallel.collectives import all_reduce, barrier
from megalite.parallel.context import ParallelContext
from megalite.parallel.device import choose_backend, choose_device
from megalite.pipeline.partition import check_split
from megalite.topology.mesh import Mesh
from megalite.topology.microbatches import BatchSchedule
from megalite.train.checkpointing import Checkpointing, adopt_checkpoint_settings
from megalite.train.engine import Engine, Schedules, build_engine
from megalite.train.exits import ExitReason
from megalite.train.hooks import HookList, build_hooks
from megalite.train.loop import EvalSet, TrainingLoop
from megalite.train.metrics import RunInfo
from megalite.train.state import Progress
from megalite.train.vocabulary import Vocabulary, find_vocabulary


@dataclass(frozen=True)
class _Length:
    """How long a run is, in steps and in samples, and its batch sizes on the way."""

    batches: BatchSchedule
    train_iters: int
    train_samples: int


def pretrain(argv: Sequence[str]) -> int:
    """Run the training that ``argv`` asks for; returns the exit status."""
    setup_logging()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    config = adopt_checkpoint_settings(parse(argv), argv)
    check(config, world_size, also=(lambda: check_split(config), lambda: _check_plugins(config)))
    config = settle(config, world_size)
    vocabulary = find_vocabulary(config)
    config = config.replace(vocab_size=max(vocabulary.vocab_size, config.model.vocab_size or 0))
    parallel = config.parallel
    mesh = Mesh.from_world(world_size, parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size)
    length = _length(config, mesh)
    schedules = Schedules(config)
    schedules.training(length.batches.at(0).num_microbatches)
    logger.info(summary(config))
    logger.info(f"layout: tensor {mesh.tp} x pipeline {mesh.pp} (virtual stages {config.virtual_stages}) x data {mesh.dp}")
    backend = choose_backend(parallel.distributed_backend)
    context = ParallelContext.create(mesh, backend, choose_device(backend), parallel.distributed_timeout_minutes)
    try:
        return _run(config, context, length, vocabulary)
    finally:
        context.close()


def _check_plugins(config: Config) -> None:
    """Refuse names of models, optimizers and schedules that no file has."""
    plugins.load("megalite.models", config.model.model, "--model")
    plugins.load("megalite.optim.rules", config.optimizer.optimizer, "--optimizer")


def _length(config: Config, mesh: Mesh) -> _Length:
    training = config.training
    batches = BatchSchedule(training.global_batch_size, training.micro_batch_size, mesh.dp, training.rampup_batch_size)
    train_iters = training.train_iters
    if train_iters is None:
        train_iters = batches.iterations_for_samples(training.train_samples)
    return _Length(batches, train_iters, batches.samples_at_iteration(train_iters))


def _run(config: Config, context: ParallelContext, length: _Length, vocabulary: Vocabulary) -> int:
    datasets = _build_datasets(config, length, vocabulary)
    engine = build_engine(config, context)
    _report_parameters(engine)
    scaler = make_scaler(config.training)
    fingerprint = datasets.train.fingerprint if datasets.train is not None else None
    checkpointing = Checkpointing(config, context, fingerprint)
    progress = checkpointing.restore(engine, scaler)
    run = RunInfo(
        config=config,
        world_size=context.mesh.world_size,
        device_name=torch.cuda.get_device_name(context.device) if context.device.type == "cuda" else "cpu",
        iteration=progress.iteration,
        consumed_samples=progress.consumed_samples,
        train_iters=length.train_iters,
        train_samples=length.train_samples,
    )
    with build_hooks(run) if context.rank == 0 else HookList([]) as hooks:
        hooks.on_start(run)
        train_data = _loader(engine, datasets.train, length.train_samples)
        loop = TrainingLoop(run, engine, scaler, progress, length.batches, train_data, checkpointing, hooks)
        reason = _train_and_evaluate(loop, run, progress, _eval_sets(engine, datasets))
        hooks.on_exit(reason, progress.iteration)
    checkpointing.close()
    barrier(context.world)
    return 0


def _build_datasets(config: Config, length: _Length, vocabulary: Vocabulary) -> Datasets:
    held_out = config.training.eval_iters * config.training.global_batch_size
    train = 0 if config.training.skip_train else length.train_samples
    request = Request(config.model.seq_length, config.training.seed, config.data, vocabulary)
    return build_datasets(request, (train, held_out, held_out))


def _loader(engine: Engine, dataset: Dataset | None, num_samples: int) -> BatchLoader | None:
    if dataset is None:
        return None
    # Layers read document borders where there are any: only then does attention end at them.
    fields = engine.batch_fields - (set() if engine.config.data.reset_attention_mask else {"document_ids"})
    return BatchLoader(dataset, num_samples, fields, engine.context.device, engine.config.data.num_workers)


def _eval_sets(engine: Engine, datasets: Datasets) -> dict[str, EvalSet]:
    """The held-out sets by name, "validation" and "test", those that have data."""
    num_batches = engine.config.training.eval_iters
    num_samples = num_batches * engine.config.training.global_batch_size
    found = {"validation": datasets.valid, "test": datasets.test}
    return {
        name: EvalSet(name, _loader(engine, dataset, num_samples), num_batches)
        for name, dataset in found.items()
        if dataset is not None
    }


def _train_and_evaluate(loop: TrainingLoop, run: RunInfo, progress: Progress, sets: dict[str, EvalSet]) -> ExitReason:
    validation = [held_out for name, held_out in sets.items() if name == "validation"]
    if run.config.training.skip_train:
        loop.evaluate(list(sets.values()))
        return ExitReason.COMPLETED
    if progress.iteration >= run.train_iters:
        logger.info(f"training is already complete: {progress.iteration} of {run.train_iters} steps are done")
        return ExitReason.COMPLETED
    reason = loop.train(validation)
    if reason is ExitReason.COMPLETED:
        loop.evaluate([held_out for held_out in sets.values() if not loop.evaluated(held_out.name)])
    return reason


def _report_parameters(engine: Engine) -> None:
    """Say how many parameters were built over all ranks, and refuse a number that the model does not have."""
    owned = sum(segment.numel for flat in engine.strategy.slices() for segment in flat.owned_segments())
    total = all_reduce(torch.tensor(owned, device=engine.context.device), engine.context.world).item()
    expected = plugins.load("megalite.models", engine.config.model.model, "--model").num_parameters(engine.config.model)
    assert total == expected, f"the ranks built {total} parameters; the model has {expected}"
    logger.info(f"number of parameters: {total:,}")
