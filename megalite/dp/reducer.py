"""GradientReducer: starts the reduction of each bucket as soon as the last gradient of the step is in it."""

from typing import Callable, Mapping, Sequence

from torch import nn

from megalite.dp.buckets import Bucket
from megalite.parallel.collectives import Done, Handle


class GradientReducer:
    """Counts the gradients that arrive in each bucket, and starts reductions in bucket order.

    Backward passes of different ranks may complete buckets in different orders, but collectives must start in the same
    order everywhere: a bucket that is complete waits until those before it have started.
    """

    def __init__(
        self, buckets: Sequence[Bucket], start: Callable[[Bucket], Handle], overlap: bool, uses: Mapping[str, int]
    ):
        """``start`` begins the reduction of a bucket; without ``overlap`` all begin in :meth:`finish`.

        ``uses`` is how often a micro-batch uses a parameter, by name, where that is not once.
        """
        self._buckets, self._start, self._overlap = buckets, start, overlap
        self._uses = [sum(uses.get(entry.param.spec.name, 1) for entry in bucket.entries) for bucket in buckets]
        self._index = {entry.param: index for index, bucket in enumerate(buckets) for entry in bucket.entries}
        self._missing = [0] * len(buckets)
        self._handles: list[Handle] = []
        for param in self._index:
            param.grad_hook = self._arrived

    def begin_step(self, num_microbatches: int) -> None:
        """Expect the gradients of ``num_microbatches``, and zero the main gradients."""
        for bucket in self._buckets:
            bucket.grad.zero_()
        self._missing = [uses * num_microbatches for uses in self._uses]
        self._handles = []

    def finish(self) -> None:
        """Start what has not started, wait for all. Parameters that no micro-batch used count with a zero gradient."""
        while len(self._handles) < len(self._buckets):
            self._start_next()
        for index, handle in enumerate(self._handles):
            handle.wait()
            self._handles[index] = Done()  # A handle may hold memory.

    def _arrived(self, param: nn.Parameter) -> None:
        index = self._index[param]
        self._missing[index] -= 1
        assert self._missing[index] >= 0 and index >= len(self._handles), (
            f"{param.spec.name}: more gradients arrived than uses x micro-batches; its bucket may be reduced already"
        )
        if self._overlap:
            while len(self._handles) < len(self._buckets) and self._missing[len(self._handles)] == 0:
                self._start_next()

    def _start_next(self) -> None:
        self._handles.append(self._start(self._buckets[len(self._handles)]))
