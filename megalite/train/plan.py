"""The plan of a run: everything that is known, and refused, before any process talks to another."""

from dataclasses import dataclass, replace
from typing import Callable

from megalite import plugins
from megalite.config import Config
from megalite.config.check import check
from megalite.config.report import one_error
from megalite.config.settle import settle
from megalite.convert.export import check_exportable
from megalite.data.sources import find_sources, names_one_way, validation_sets
from megalite.data.split import parse_split
from megalite.pipeline.partition import check_split
from megalite.topology.mesh import Mesh
from megalite.topology.microbatches import BatchSchedule
from megalite.train.engine import Schedules
from megalite.train.state import Progress
from megalite.train.vocabulary import Vocabulary, find_vocabulary, with_vocabulary


@dataclass(frozen=True)
class RunPlan:
    """A checked configuration and what follows from it; equal on every rank.

    ``train_iters`` and ``train_samples`` are the length of the run, 0 where nothing is to be trained.
    """

    config: Config
    mesh: Mesh
    vocabulary: Vocabulary
    batches: BatchSchedule
    train_iters: int
    train_samples: int
    schedules: Schedules

    def resumed(self, progress: Progress) -> "RunPlan":
        """The plan of a run that goes on from ``progress``, whose batches may have been of another size until there.

        What the command line gives of --train-iters and --train-samples is the length of the whole run; the other
        follows from the batches that are left.
        """
        training, consumed = self.config.training, progress.consumed_samples
        if training.skip_train:
            return self
        if training.train_iters is not None:
            left = max(0, training.train_iters - progress.iteration)
        else:
            left = self.batches.iterations_for_samples(max(consumed, training.train_samples), consumed)
        train_samples = self.batches.samples_at_iteration(left, consumed)
        train_iters = training.train_iters or progress.iteration + left
        return replace(self, train_iters=train_iters, train_samples=train_samples)


def plan_run(config: Config, world_size: int) -> RunPlan:
    """Check ``config`` and settle it for ``world_size`` ranks; nothing is built yet.

    Raises :class:`MegaliteError` for whatever can be seen to be wrong by now.
    """
    check(config, world_size, also=_further_checks(config))
    config = settle(config, world_size)
    vocabulary = find_vocabulary(config)
    config = with_vocabulary(config, vocabulary)
    parallel, training = config.parallel, config.training
    mesh = Mesh.from_world(world_size, parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size)
    batches = BatchSchedule(training.global_batch_size, training.micro_batch_size, mesh.dp, training.rampup_batch_size)
    train_iters = 0 if training.skip_train else _train_iters(config, batches)
    schedules = Schedules(config)
    schedules.training(batches.at(0).num_microbatches)
    return RunPlan(config, mesh, vocabulary, batches, train_iters, batches.samples_at_iteration(train_iters), schedules)


def _train_iters(config: Config, batches: BatchSchedule) -> int:
    training = config.training
    train_iters = training.train_iters or batches.iterations_for_samples(training.train_samples)
    if train_iters == 0:
        raise one_error(
            [
                f"train_samples ({training.train_samples}) must be at least the first global batch "
                f"({batches.at(0).global_batch_size}), for a last batch that is not whole is not trained on: raise it, "
                "or lower --global-batch-size."
            ]
        )
    return train_iters


def _further_checks(config: Config) -> list[Callable[[], object]]:
    """What the rules of the configuration leave to other packages: names of files, the split of layers, texts with a
    grammar."""
    data = config.data
    checks = [
        lambda: plugins.load("megalite.models", config.model.model, "--model"),
        lambda: plugins.load("megalite.optim.rules", config.optimizer.optimizer, "--optimizer"),
        lambda: check_split(config),
    ]
    if config.checkpoint.save_hf:
        checks.append(lambda: check_exportable(config.model))
    if data.split is not None:
        checks.append(lambda: parse_split(data.split))
    if names_one_way(data):
        checks.append(lambda: validation_sets(data, find_sources(data)))
    return checks
