"""How far a conversion has come, on standard error: bytes, rate and the time that is left."""

import time
from dataclasses import dataclass, field
from typing import Callable

from megalite.log import progress

_SECONDS_BETWEEN_LINES = 2.0


@dataclass
class Progress:
    """Counts the bytes written; a line now and then, and one at the end."""

    what: str = "converted"
    clock: Callable[[], float] = time.monotonic
    show: Callable[[str], None] = progress
    total_bytes: int = 0
    num_bytes: int = 0
    _started: float = field(init=False)
    _shown: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self._shown = self.clock()

    def begin(self, total_bytes: int) -> None:
        """Say how much is to be written."""
        self.total_bytes = total_bytes

    def add(self, num_bytes: int) -> None:
        """Count bytes that are on disk."""
        self.num_bytes += num_bytes
        now = self.clock()
        if now - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = now
            self.show(self._line(now))

    def finish(self) -> None:
        """Say how much it was, and how fast."""
        self.show(self._line(self.clock()))

    def _line(self, now: float) -> str:
        seconds = max(now - self._started, 1e-9)
        rate = self.num_bytes / seconds
        line = f"{self.what} {self.num_bytes / 1e6:.1f} of {self.total_bytes / 1e6:.1f} MB, {rate / 1e6:.1f} MB/s"
        left = self.total_bytes - self.num_bytes
        return f"{line}, {left / rate:.0f} s left" if left > 0 and rate > 0 else f"{line}, {seconds:.1f} s"
