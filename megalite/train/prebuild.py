"""The body of ``tools/build_index.py``: the index caches of a run, built before any accelerator waits for them."""

import math
from pathlib import Path
from typing import Sequence

from megalite.checkpoint.locate import find_checkpoint, is_fresh
from megalite.config import Config
from megalite.convert.export import foreign_weights
from megalite.data.stream import History
from megalite.errors import ConfigError
from megalite.log import logger, setup_logging
from megalite.train.configure import configure
from megalite.train.plan import plan_run
from megalite.train.pretrain import build_run_datasets


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
    datasets = build_run_datasets(plan_run(config, smallest_world), _history(config))
    datasets.prepare(config.data.num_dataset_builder_threads)
    built = ["training"] * (datasets.train is not None) + list(datasets.held_out)
    logger.info(f"the indices of {', '.join(built)} are ready")
    return 0


def _history(config: Config) -> History | None:
    """What the checkpoint says that the run will resume from, if there is one yet."""
    load, step = config.checkpoint.load, config.checkpoint.ckpt_step
    if load is None or config.checkpoint.finetune or is_fresh(Path(load)) or foreign_weights(load, step):
        return None
    return History.from_meta(find_checkpoint(Path(load), step).store.meta)
