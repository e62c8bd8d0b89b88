"""What a run reports: the results of its steps and evaluations, and their sums between two log lines.

Plain data on rank 0, the same whatever the layout. Hooks (:mod:`megalite.train.hooks`) show and store it.
"""

import math
import time
from dataclasses import dataclass, field
from typing import Mapping

from megalite.config import Config
from megalite.train.memory import Memory
from megalite.train.throughput import Speedometer, Throughput, peak_tflops


@dataclass(frozen=True)
class RunInfo:
    """What is known when training starts, ``iteration`` and ``consumed_samples`` being where it starts or resumes.

    ``train_samples`` is the total of the run, also when its length was given in iterations. ``device_name`` is
    PyTorch's name of the GPU ("NVIDIA H100 80GB HBM3") or "cpu". ``started`` is when the program started, by
    ``time.monotonic``.
    """

    config: Config
    world_size: int
    device_name: str
    iteration: int
    consumed_samples: int
    train_iters: int
    train_samples: int
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class StepResult:
    """One training step, as the whole world saw it.

    ``iteration`` counts from 1, ``consumed_samples`` includes this step. ``loss`` is the mean over the ``num_tokens``
    tokens of the global batch that count. ``skipped``: the parameters were not updated; ``nan``: the loss or a gradient
    was not finite. ``grad_norm`` is taken before clipping.
    """

    iteration: int
    consumed_samples: int
    loss: float
    num_tokens: int
    grad_norm: float | None
    learning_rate: float
    weight_decay: float
    global_batch_size: int
    loss_scale: float
    skipped: bool
    nan: bool
    num_zeros: int | None
    params_norm: float | None
    seconds: float


@dataclass(frozen=True)
class EvalResult:
    """One evaluation after ``iteration`` steps: the mean loss over ``num_tokens`` tokens of the set called ``name``
    ("validation", "test"), whose text has ``tokens_per_byte`` tokens a byte if that is known."""

    iteration: int
    consumed_samples: int
    name: str
    loss: float
    num_tokens: int
    seconds: float
    tokens_per_byte: float | None = None

    @property
    def bits_per_byte(self) -> float | None:
        """The loss per byte of text instead of token, in bits: comparable between tokenizers."""
        return None if self.tokens_per_byte is None else self.loss / math.log(2.0) * self.tokens_per_byte

    @property
    def perplexity(self) -> float:
        """exp(loss), the loss capped at 20 as Megatron-LM does; NaN stays NaN."""
        # min returns its first argument where a comparison with NaN fails, so the loss comes first.
        return math.exp(min(self.loss, 20.0))


@dataclass(frozen=True)
class IntervalSummary:
    """The steps since the last log line: the newest one, and sums over all of them.

    ``loss`` is the mean of the losses of the steps that updated the parameters; where none did, the newest loss as it
    was. ``num_tokens`` are those that count in the loss. ``seconds`` is the time of the steps, evaluations and saves
    left out; ``eta_seconds`` what the remaining samples take at that pace. ``timers`` holds (min, max) seconds per
    iteration over the ranks.
    """

    last: StepResult
    loss: float
    num_iterations: int
    num_skipped: int
    num_nan: int
    num_samples: int
    num_tokens: int
    seconds: float
    throughput: Throughput
    memory: Memory
    train_iters: int
    eta_seconds: float
    timers: Mapping[str, tuple[float, float]]

    @property
    def seconds_per_iteration(self) -> float:
        """Mean time of a step, skipped ones included."""
        return self.seconds / self.num_iterations


class Interval:
    """Gathers steps until the next log line.

    The first step of a process has a line of its own, for it carries the warm-up of allocators and kernels; the loop
    also writes one for what is left at the end. So each step is in exactly one line, and the samples of the lines add
    up to those consumed.
    """

    def __init__(self, run: RunInfo):
        peak = run.config.logging.peak_tflops or peak_tflops(run.device_name)
        self._run = run
        self._speedometer = Speedometer(run.config.model, run.world_size, peak)
        self._steps: list[StepResult] = []
        self._is_first = True

    def add(self, result: StepResult) -> None:
        """Take in the step just done."""
        self._steps.append(result)

    def __len__(self) -> int:
        """Number of steps since the last line."""
        return len(self._steps)

    @property
    def due(self) -> bool:
        """Whether the newest step ends the interval, by ``--log-interval``."""
        return self._is_first or self._steps[-1].iteration % self._run.config.logging.log_interval == 0

    def close(self, memory: Memory, timers: Mapping[str, tuple[float, float]] | None = None) -> IntervalSummary:
        """Sum up the steps since the last line, at least one, and start the next interval."""
        steps, self._steps, self._is_first = self._steps, [], False
        last = steps[-1]
        losses = [step.loss for step in steps if not step.skipped]
        num_samples = sum(step.global_batch_size for step in steps)
        seconds = sum(step.seconds for step in steps)
        remaining_samples = max(0, self._run.train_samples - last.consumed_samples)
        return IntervalSummary(
            last=last,
            loss=sum(losses) / len(losses) if losses else last.loss,
            num_iterations=len(steps),
            num_skipped=sum(step.skipped for step in steps),
            num_nan=sum(step.nan for step in steps),
            num_samples=num_samples,
            num_tokens=sum(step.num_tokens for step in steps),
            seconds=seconds,
            throughput=self._speedometer.measure(num_samples, seconds),
            memory=memory,
            train_iters=self._run.train_iters,
            eta_seconds=remaining_samples * seconds / num_samples,
            timers=timers or {},
        )
