"""How many samples and micro-batches a step has, also while the batch is ramped up. Integer arithmetic only."""

from dataclasses import dataclass
from typing import NamedTuple

from megalite.errors import ConfigError


class BatchSize(NamedTuple):
    """Size of one step."""

    global_batch_size: int
    """Samples over all data-parallel ranks."""
    num_microbatches: int
    """Micro-batches per data-parallel rank."""


class _Phase(NamedTuple):
    """Iterations in a row with one batch size."""

    first_iteration: int
    first_sample: int
    batch_size: int


@dataclass(frozen=True)
class BatchSchedule:
    """Batch size as a function of the samples consumed so far.

    ``rampup`` is Megatron-LM's ``--rampup-batch-size START INCREMENT SAMPLES``: the batch starts with ``start`` samples
    and grows by ``increment`` at even distances until, after ``samples`` samples, it is ``global_batch_size``. Raises
    :class:`ConfigError` if any batch on the way does not divide into micro-batches.
    """

    global_batch_size: int
    micro_batch_size: int
    data_parallel_size: int
    rampup: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("global_batch_size", "micro_batch_size", "data_parallel_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; given {getattr(self, name)}: raise it.")
        self._check_global_batch()
        if self.rampup is not None:
            self._check_rampup(*self.rampup)

    def at(self, consumed_samples: int) -> BatchSize:
        """Size of the step that starts after ``consumed_samples`` samples."""
        batch_size = self._batch_size(self._rampup_step(consumed_samples))
        return BatchSize(batch_size, batch_size // self._samples_per_microbatch)

    def iterations_for_samples(self, train_samples: int, consumed: int = 0) -> int:
        """Number of whole steps from ``consumed`` samples up to ``train_samples``, at least as many; what is left of
        the last batch is not trained on."""
        phase = [phase for phase in self._phases(consumed) if phase.first_sample <= train_samples][-1]
        return phase.first_iteration + (train_samples - phase.first_sample) // phase.batch_size

    def samples_at_iteration(self, iteration: int, consumed: int = 0) -> int:
        """Samples consumed after ``iteration`` steps that start from ``consumed`` samples."""
        phase = [phase for phase in self._phases(consumed) if phase.first_iteration <= iteration][-1]
        return phase.first_sample + (iteration - phase.first_iteration) * phase.batch_size

    @property
    def _samples_per_microbatch(self) -> int:
        return self.micro_batch_size * self.data_parallel_size

    @property
    def _num_rampup_steps(self) -> int:
        if self.rampup is None:
            return 0
        start, increment, _ = self.rampup
        return (self.global_batch_size - start) // increment

    def _rampup_step(self, consumed_samples: int) -> int:
        """How often the batch has grown: once per samples / steps samples."""
        if self.rampup is None:
            return 0
        return min(self._num_rampup_steps, consumed_samples * self._num_rampup_steps // self.rampup[2])

    def _batch_size(self, step: int) -> int:
        if self.rampup is None:
            return self.global_batch_size
        start, increment, _ = self.rampup
        return start + step * increment

    def _phases(self, consumed: int) -> list[_Phase]:
        """The phases of a run that starts, or goes on, from ``consumed`` samples; iterations count from there."""
        phases, iteration = [], 0
        while (step := self._rampup_step(consumed)) < self._num_rampup_steps:
            batch_size = self._batch_size(step)
            phases.append(_Phase(iteration, consumed, batch_size))
            next_growth = -(-(step + 1) * self.rampup[2] // self._num_rampup_steps)
            num_iterations = -(-(next_growth - consumed) // batch_size)
            iteration += num_iterations
            consumed += num_iterations * batch_size
        return [*phases, _Phase(iteration, consumed, self.global_batch_size)]

    def _check_rampup(self, start: int, increment: int, samples: int) -> None:
        rampup = f"--rampup-batch-size {start} {increment} {samples}"
        given = f"given {rampup} and global_batch_size {self.global_batch_size}"
        if min(start, increment, samples) < 1:
            raise ConfigError(
                f"start, increment and samples of a batch ramp-up must be at least 1; {given}: raise them."
            )
        growth = self.global_batch_size - start
        if growth < 1:
            raise ConfigError(f"a batch ramp-up must start below the global batch size; {given}: {self._remedy()}.")
        if growth % increment:
            raise ConfigError(
                f"a batch ramp-up must reach the global batch size in whole increments, but {growth} samples of growth "
                f"are not a multiple of {increment}; {given}: {self._remedy()}."
            )
        unit = self._samples_per_microbatch
        for batch_size in range(start, self.global_batch_size, increment):
            if batch_size % unit:
                raise ConfigError(
                    f"every batch of a ramp-up must be a multiple of {self._unit_text()}; the batch of {batch_size} "
                    f"samples is not; {given}: {self._remedy()}."
                )

    def _check_global_batch(self) -> None:
        unit = self._samples_per_microbatch
        if self.global_batch_size % unit == 0:
            return
        below = self.global_batch_size // unit * unit
        remedy = f"use a global batch of {f'{below} or ' if below else ''}{below + unit}"
        per_rank, rest = divmod(self.global_batch_size, self.data_parallel_size)
        if rest == 0:
            fitting = max(size for size in _divisors(per_rank) if size <= self.micro_batch_size)
            remedy += f", or a micro-batch size of {fitting}"
        raise ConfigError(
            f"global_batch_size ({self.global_batch_size}) must be a multiple of {self._unit_text()}: {remedy}."
        )

    def _unit_text(self) -> str:
        return (
            f"micro_batch_size ({self.micro_batch_size}) x data_parallel_size ({self.data_parallel_size}) = "
            f"{self._samples_per_microbatch}"
        )

    def _remedy(self) -> str:
        """A ramp-up near the one asked for that works."""
        unit, (start, increment, samples) = self._samples_per_microbatch, self.rampup
        if self.global_batch_size == unit:
            return "leave it out, for no smaller batch divides"
        start = min(max(start // unit, 1) * unit, self.global_batch_size - unit)
        steps = _divisors((self.global_batch_size - start) // unit)
        increment = min((unit * step for step in steps), key=lambda fitting: abs(fitting - increment))
        return f"use for example --rampup-batch-size {start} {increment} {samples}"


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
