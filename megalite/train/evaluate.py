"""Evaluation: the mean loss over a fixed set of samples, by forward passes alone."""

import time

from megalite.data.loader import BatchLoader
from megalite.data.sampler import microbatches
from megalite.errors import DataError
from megalite.train.engine import Engine
from megalite.train.step import reduce_loss


def evaluate(engine: Engine, loader: BatchLoader, num_batches: int, name: str) -> tuple[float, int, float]:
    """(mean loss over unmasked tokens, number of these tokens, seconds) over the first ``num_batches`` global batches.

    Every evaluation reads the same samples, and the mean is that of all their tokens, at any layout and micro-batch.
    Raises :class:`DataError` if no token counts.
    """
    started = time.perf_counter()
    training, coords, mesh = engine.config.training, engine.context.coords, engine.context.mesh
    batch, micro = training.global_batch_size, training.micro_batch_size
    numbers = [microbatches(i * batch, batch, micro, coords.dp, mesh.dp) for i in range(num_batches)] + [[]]
    loss_sum = num_tokens = 0.0
    engine.train_mode(False)
    for now, ahead in zip(numbers, numbers[1:]):
        batches = loader.load(now, ahead)
        sums = reduce_loss(engine, engine.executor.run(engine.schedules.evaluation(len(batches)), batches))
        loss_sum, num_tokens = loss_sum + sums[0], num_tokens + sums[1]
    engine.train_mode(True)
    if num_tokens == 0:
        raise DataError(f"the {name} set must have tokens that count in the loss; in its first {num_batches} batches there are none.")
    return loss_sum / num_tokens, int(num_tokens), time.perf_counter() - started
