"""When a run stops, and with which exit status.

Ranks see signals and clocks at different moments, so no rank may act on its own: each asks its :class:`ExitPolicy`
after every step, the loop takes the maximum of the answers over the world, and all ranks stop after the same step.
"""

import contextlib
import signal
import time
from enum import IntEnum
from types import FrameType
from typing import Callable, Iterator

from megalite.config import TrainingConfig

EXIT_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
SAVE_SIGNAL = signal.SIGUSR1


class ExitReason(IntEnum):
    """Why a run stops; the larger wins where ranks differ, so a maximum over the world settles it.

    Every one of them leaves a checkpoint (where ``--save`` is given) and exit status 0: the run did what it was asked.
    Status 1 is a failure, 2 an error of the user.
    """

    NONE = 0
    INTERVAL = 1
    DURATION = 2
    SIGNAL = 3
    COMPLETED = 4

    @property
    def text(self) -> str:
        """The reason in words."""
        return _TEXTS[self]


_TEXTS = {
    ExitReason.NONE: "the run goes on",
    ExitReason.INTERVAL: "--exit-interval was reached",
    ExitReason.DURATION: "--exit-duration-in-mins has passed",
    ExitReason.SIGNAL: "a signal asked for it",
    ExitReason.COMPLETED: "training is complete",
}


@contextlib.contextmanager
def save_signal_ignored(saving: bool) -> Iterator[None]:
    """Where ``saving``, SIGUSR1 ends no process within the block: outside of training nothing is new to save."""
    former = signal.signal(SAVE_SIGNAL, signal.SIG_IGN) if saving else None
    try:
        yield
    finally:
        if former is not None:
            signal.signal(SAVE_SIGNAL, former)


class ExitPolicy:
    """Answers, after each step, whether this rank wants the run to stop, or to save and go on.

    With ``--exit-signal-handler`` SIGTERM and SIGINT no longer end the process, nor does SIGUSR1 where ``saving``: they
    are noted, however often they come (torchrun repeats them), until :meth:`close` restores the former handlers. The
    duration counts from ``started``, the start of the program by ``clock``; default: from now.
    """

    def __init__(
        self,
        training: TrainingConfig,
        train_iters: int,
        saving: bool = False,
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
    ):
        self._train_iters = train_iters
        self._interval = training.exit_interval
        self._minutes = training.exit_duration_in_mins
        self._clock = clock
        self._started = clock() if started is None else started
        self._received: set[int] = set()
        noted = {*(EXIT_SIGNALS if training.exit_signal_handler else ()), *((SAVE_SIGNAL,) if saving else ())}
        self._former = {number: signal.signal(number, self._note) for number in noted}

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Nothing else here: a handler runs between any two bytecodes, where even logging is not safe.
        self._received.add(number)

    @property
    def signalled(self) -> bool:
        """Whether this rank has received a signal to stop."""
        return not EXIT_SIGNALS.isdisjoint(self._received)

    @property
    def save_requested(self) -> bool:
        """Whether this rank has received the signal to save since :meth:`save_granted`."""
        return SAVE_SIGNAL in self._received

    def save_granted(self) -> None:
        """The ranks have agreed to save."""
        self._received.discard(SAVE_SIGNAL)

    def requested(self, iteration: int) -> ExitReason:
        """What this rank wants, to be asked after step ``iteration`` of the run; the maximum over the ranks decides."""
        if iteration >= self._train_iters:
            return ExitReason.COMPLETED
        if self.signalled:
            return ExitReason.SIGNAL
        if self._minutes is not None and self._clock() - self._started >= self._minutes * 60:
            return ExitReason.DURATION
        if self._interval is not None and iteration % self._interval == 0:
            return ExitReason.INTERVAL
        return ExitReason.NONE

    def close(self) -> None:
        """Put back the signal handlers found at construction."""
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}

    def __enter__(self) -> "ExitPolicy":
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
