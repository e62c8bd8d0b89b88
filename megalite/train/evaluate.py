"""Evaluation: the mean loss over a fixed set of samples, by forward passes alone."""

from dataclasses import dataclass
from typing import Callable

from megalite.data.loader import BatchLoader
from megalite.data.sampler import microbatches
from megalite.errors import DataError
from megalite.train.engine import Engine
from megalite.train.step import reduce_loss


@dataclass(frozen=True)
class EvalSet:
    """A held-out set: its name, where its samples come from, how many global batches are read of it, and how many
    tokens a byte of its text has, where that is known."""

    name: str
    loader: BatchLoader
    num_batches: int
    tokens_per_byte: float | None = None


def evaluate(engine: Engine, held_out: EvalSet, stop: Callable[[], bool] = lambda: False) -> tuple[float, int] | None:
    """(mean loss over unmasked tokens, number of these tokens) over the batches of ``held_out``.

    Every evaluation reads the same samples, and the mean is that of all their tokens, at any layout and micro-batch.
    ``stop`` is asked after each batch, on every rank; once it says yes there is no result. Raises :class:`DataError` if
    no token counts.
    """
    training, coords, mesh = engine.config.training, engine.context.coords, engine.context.mesh
    batch, micro = training.global_batch_size, training.micro_batch_size
    numbers = [microbatches(i * batch, batch, micro, coords.dp, mesh.dp) for i in range(held_out.num_batches)] + [[]]
    loss_sum = num_tokens = 0.0
    stopped = False
    engine.train_mode(False)
    for now, ahead in zip(numbers, numbers[1:]):
        batches = held_out.loader.load(now, ahead)
        sums = reduce_loss(engine, engine.executor.run(engine.schedules.evaluation(len(batches)), batches))
        loss_sum, num_tokens = loss_sum + sums[0], num_tokens + sums[1]
        stopped = stop()
        if stopped:
            break
    engine.train_mode(True)
    if stopped:
        return None
    if num_tokens == 0:
        raise DataError(
            f"the {held_out.name} set must have tokens that count in the loss; in its first {held_out.num_batches} "
            "batches there are none."
        )
    return loss_sum / num_tokens, int(num_tokens)
