"""The body of ``pretrain_gpt.py``: from a command line to a trained, saved and evaluated model."""

import math
import os
import time
from typing import Sequence

import torch

from megalite import plugins
from megalite.config.dump import summary
from megalite.config.report import one_error
from megalite.data.build import Datasets, Wanted, build_datasets
from megalite.data.dataset import Dataset, Request
from megalite.data.density import tokens_per_byte
from megalite.data.loader import BatchLoader
from megalite.data.stream import History
from megalite.log import logger, setup_logging
from megalite.optim.scaler import make_scaler
from megalite.parallel.collectives import all_reduce, barrier
from megalite.parallel.context import ParallelContext
from megalite.parallel.device import choose_backend, choose_device
from megalite.train.checkpointing import Checkpointing
from megalite.train.configure import configure
from megalite.train.engine import Engine, build_engine
from megalite.train.evaluate import EvalSet
from megalite.train.exits import ExitReason, save_signal_ignored
from megalite.train.hooks import HookList, build_hooks
from megalite.train.loop import TrainingLoop
from megalite.train.metrics import RunInfo
from megalite.train.plan import RunPlan, plan_run
from megalite.train.state import Progress


def pretrain(argv: Sequence[str]) -> int:
    """Run the training that ``argv`` asks for; returns the exit status."""
    started = time.monotonic()
    setup_logging()
    plan = plan_run(configure(argv), int(os.environ.get("WORLD_SIZE", "1")))
    config, mesh = plan.config, plan.mesh
    backend = choose_backend(config.parallel.distributed_backend)
    device = choose_device(backend)
    logger.info(summary(config))
    virtual = f"virtual stages {config.virtual_stages}"
    logger.info(f"layout: tensor {mesh.tp} x pipeline {mesh.pp} ({virtual}) x data {mesh.dp}")
    with save_signal_ignored(config.checkpoint.save is not None):
        context = ParallelContext.create(mesh, backend, device, config.parallel.distributed_timeout_minutes)
        _run(plan, context, started)
    # Not after a failure: to leave the job in good order is to wait for ranks that may never come.
    context.close()
    return 0


def _run(plan: RunPlan, context: ParallelContext, started: float) -> None:
    checkpointing = Checkpointing(plan.config, context)
    plan = plan.resumed(checkpointing.progress)
    datasets = build_run_datasets(plan, checkpointing.history)
    checkpointing.account_for(datasets.train)
    datasets.prepare(plan.config.data.num_dataset_builder_threads)
    engine = build_engine(plan.config, context, plan.schedules)
    _report_parameters(engine)
    scaler = make_scaler(plan.config.training)
    progress = checkpointing.restore(engine, scaler)
    run = RunInfo(
        config=plan.config,
        world_size=context.mesh.world_size,
        device_name=torch.cuda.get_device_name(context.device) if context.device.type == "cuda" else "cpu",
        iteration=progress.iteration,
        consumed_samples=progress.consumed_samples,
        train_iters=plan.train_iters,
        train_samples=plan.train_samples,
        started=started,
    )
    with build_hooks(run) if context.rank == 0 else HookList([]) as hooks:
        hooks.on_start(run)
        train_data = _loader(engine, datasets.train, plan.train_samples)
        loop = TrainingLoop(run, engine, scaler, progress, plan.batches, train_data, checkpointing, hooks)
        reason = _train_and_evaluate(loop, run, progress, _eval_sets(engine, datasets))
        hooks.on_exit(reason, progress.iteration)
    checkpointing.close()
    barrier(context.world)


def build_run_datasets(plan: RunPlan, history: History | None = None) -> Datasets:
    """The data of a run, which may continue another; their indices are still to be prepared."""
    config, training = plan.config, plan.config.training
    held_out = training.eval_iters * training.global_batch_size
    valid = None if config.data.full_validation and held_out else held_out
    request = Request(config.model.seq_length, training.seed, config.data, plan.vocabulary)
    kind = "gpt_fim" if config.data.fim_data else "gpt"
    datasets = build_datasets(request, Wanted(plan.train_samples, valid, held_out), history, kind)
    if training.skip_train and not datasets.held_out:
        raise one_error(
            [
                f"skip_train needs something to evaluate on; with eval_iters {training.eval_iters} and split "
                f"{config.data.split} there is nothing: raise --eval-iters, or give validation or test data a share."
            ]
        )
    return datasets


def _loader(engine: Engine, dataset: Dataset | None, num_samples: int) -> BatchLoader | None:
    if dataset is None:
        return None
    # Layers read document borders where there are any: only then does attention end at them.
    fields = engine.batch_fields - (set() if engine.config.data.reset_attention_mask else {"document_ids"})
    return BatchLoader(dataset, num_samples, fields, engine.context.device, engine.config.data.num_workers)


def _eval_sets(engine: Engine, datasets: Datasets) -> dict[str, EvalSet]:
    """The held-out sets by name, those that have data."""
    batch_size = engine.config.training.global_batch_size
    sets = {}
    for name, (dataset, num_samples, blend) in datasets.held_out.items():
        loader = _loader(engine, dataset, num_samples)
        sets[name] = EvalSet(name, loader, math.ceil(num_samples / batch_size), tokens_per_byte(blend))
    return sets


def _train_and_evaluate(loop: TrainingLoop, run: RunInfo, progress: Progress, sets: dict[str, EvalSet]) -> ExitReason:
    validation = [held_out for name, held_out in sets.items() if name != "test"]
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
