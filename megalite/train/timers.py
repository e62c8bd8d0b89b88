"""Named timers for the parts of a step."""

import time
from collections import defaultdict
from contextlib import contextmanager
from typing import Callable, Iterator, Mapping, Sequence


class Timers:
    """Adds up the time spent in named blocks: ``with timers("optimizer"): ...``.

    ``synchronize`` (``torch.cuda.synchronize`` on a GPU) runs at both ends of a block, so that the time of
    asynchronous work falls to the block that started it.
    """

    def __init__(self, synchronize: Callable[[], None] | None = None, clock: Callable[[], float] = time.perf_counter):
        self._synchronize = synchronize
        self._clock = clock
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = self._now()
        try:
            yield
        finally:
            self._seconds[name] += self._now() - start

    def _now(self) -> float:
        if self._synchronize is not None:
            self._synchronize()
        return self._clock()

    def take(self) -> dict[str, float]:
        """Seconds spent under each name since the last call."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds


def spread(per_rank: Sequence[Mapping[str, float]], num_iterations: int) -> dict[str, tuple[float, float]]:
    """(min, max) seconds per iteration of each timer over the ranks that have it, from what their :meth:`Timers.take`
    returned over ``num_iterations``."""
    names = sorted({name for seconds in per_rank for name in seconds})
    values = {name: [seconds[name] / num_iterations for seconds in per_rank if name in seconds] for name in names}
    return {name: (min(found), max(found)) for name, found in values.items()}
