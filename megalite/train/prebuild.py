"""The body of ``tools/build_index.py``: the index caches of a run, built before any accelerator waits for them."""

import math
from typing import Sequence

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
        raise ConfigError("global_batch_size must be given, for without it the number of samples depends on that of ranks.")
    parallel = config.parallel
    smallest_world = math.prod(
        (parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size, parallel.context_parallel_size)
    )
    datasets = build_run_datasets(plan_run(config, smallest_world))
    built = [name for name, dataset in datasets._asdict().items() if dataset is not None]
    logger.info(f"the indices of {', '.join(built)} are ready")
    return 0
