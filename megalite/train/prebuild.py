"""The body of ``tools/build_index.py``: the index caches of a run, built before any accelerator waits for them."""

import math
from pathlib import Path
from typing import Any, Mapping, Sequence

from megalite.checkpoint.locate import find_checkpoint, is_fresh
from megalite.config import Config
from megalite.convert.export import foreign_weights
from megalite.data.stream import History
from megalite.errors import ConfigError
from megalite.log import logger, setup_logging
from megalite.train.configure import configure
from megalite.train.plan import plan_run
from megalite.train.pretrain import build_run_datasets
from megalite.train.state import Progress


def prebuild(argv: Sequence[str]) -> int:
    """Build what a run with these flags would build at its start, in one process; returns the exit status.

    The order of samples does not depend on the data-parallel size, so neither do the caches; but the global batch size
    does unless it is given, and must be.
    """
    setup_logging()
    config = configure(argv)
    if config.training.global_batch_size is None:
        raise ConfigError(
            "global_batch_size must be given, for without it the number of samples depends on that of ranks."
        )
    parallel = config.parallel
    smallest_world = math.prod(
        (parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size, parallel.context_parallel_size)
    )
    plan, meta = plan_run(config, smallest_world), _resumed_from(config)
    if meta is not None:
        plan = plan.resumed(Progress.from_meta(meta))
    datasets = build_run_datasets(plan, None if meta is None else History.from_meta(meta))
    datasets.prepare(config.data.num_dataset_builder_threads)
    built = ["training"] * (datasets.train is not None) + list(datasets.held_out)
    logger.info(f"the indices of {', '.join(built)} are ready")
    return 0


def _resumed_from(config: Config) -> Mapping[str, Any] | None:
    """What the checkpoint says that the run will resume from, if there is one yet."""
    load, step = config.checkpoint.load, config.checkpoint.ckpt_step
    if load is None or config.checkpoint.finetune or is_fresh(Path(load)) or foreign_weights(load, step):
        return None
    return find_checkpoint(Path(load), step).store.meta
