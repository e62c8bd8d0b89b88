"""DataParallel: what all data-parallel strategies have in common."""

from abc import ABC, abstractmethod
from typing import Iterable, Mapping, Sequence

import torch
from torch import nn

from megalite.config import ParallelConfig
from megalite.dp.buckets import Bucket, BucketKey, make_bucket, plan_buckets
from megalite.dp.narrow import WideningHandle
from megalite.dp.reducer import GradientReducer
from megalite.optim.slices import FlatSlice, Segment
from megalite.parallel.collectives import Handle, start_all_reduce
from megalite.parallel.context import ParallelContext
from megalite.parallel.group import Group


class DataParallel(ABC):
    """The parameters of one rank in buckets, and their way through a step. A strategy adds who updates what.

    A step is ``begin_step``, the micro-batches, ``finish_reduce``, an update of :meth:`slices`, ``publish``; then
    ``wait_params`` before parameters are used again.

    Gradients are sums over tokens, so they are added up and never averaged: the division is part of the update.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        context: ParallelContext,
        config: ParallelConfig,
        ties: Mapping[str, Group] | None = None,
        uses: Mapping[str, int] | None = None,
        reduce_dtype: torch.dtype | None = None,
    ):
        """``params`` in forward order; one that comes twice (a tied parameter) counts where it comes first.

        ``ties``: for each parameter, by name, of which other ranks hold copies, the group of its holders.
        ``uses``: how often a micro-batch uses a parameter, by name, where that is not once.
        ``reduce_dtype``: in which gradients are summed over the data-parallel ranks; default: that of main gradients.
        """
        self._context, self._config, self._ties = context, config, dict(ties or {})
        self._reduce_dtype = reduce_dtype
        self._dp = context.group("dp")
        self.buckets = self._make_buckets(list(dict.fromkeys(params)))
        self._bucket_of = {entry.param: index for index, bucket in enumerate(self.buckets) for entry in bucket.entries}
        self._slices = [self._slice(bucket) for bucket in self.buckets]
        self._gathering: dict[int, Handle] = {}
        self._reducer = GradientReducer(self.buckets, self._reduce, config.overlap_grad_reduce, uses or {})

    def begin_step(self, num_microbatches: int) -> None:
        """Zero the main gradients and expect those of ``num_microbatches``."""
        self._reducer.begin_step(num_microbatches)

    def finish_reduce(self) -> None:
        """Return when the gradients of :meth:`slices` are summed over all ranks that contribute to them."""
        self.wait_params()
        self._reducer.finish()
        # After the data-parallel sum only the part that this rank updates is left to sum over the other axes.
        axes = [bucket for bucket in self.buckets if bucket.key.reduce_axes]
        self._reduce_parts(axes, [self._context.group(*bucket.key.reduce_axes) for bucket in axes])
        tied = sorted((bucket for bucket in self.buckets if bucket.key.tie), key=lambda bucket: bucket.key.tie)
        self._reduce_parts(tied, [self._ties[bucket.key.tie] for bucket in tied])

    def slices(self) -> list[FlatSlice]:
        """What this rank's optimizer updates, one slice a bucket."""
        return self._slices

    def wait_params(self, params: Iterable[nn.Parameter] | None = None) -> None:
        """Return when ``params`` (default: all) are up to date; call it before each use."""
        if not self._gathering:
            return
        needed = list(self._gathering) if params is None else [self._bucket_of[param] for param in params]
        for index in needed:
            handle = self._gathering.pop(index, None)
            if handle is not None:
                handle.wait()

    @abstractmethod
    def publish(self) -> None:
        """After an update (or a load) of the slices: bring all parameters to every rank, or begin to.

        What has begun stands in ``self._gathering``, by index of the bucket.
        """

    @abstractmethod
    def _start_reduce(self, bucket: Bucket, grad: torch.Tensor) -> Handle:
        """Begin to sum ``grad`` over the data-parallel ranks, in place: the gradients of ``bucket``, or a copy of them.

        Once awaited, the range that this rank updates is whole.
        """

    @abstractmethod
    def _updated(self, bucket: Bucket) -> tuple[int, int]:
        """The range of ``bucket`` that this rank updates."""

    def _reduce(self, bucket: Bucket) -> Handle:
        if self._reduce_dtype is None or self._dp.size == 1:
            return self._start_reduce(bucket, bucket.grad)
        narrow = bucket.grad.to(self._reduce_dtype)
        start, stop = self._updated(bucket)
        return WideningHandle(self._start_reduce(bucket, narrow), narrow[start:stop], bucket.grad[start:stop])

    def _make_buckets(self, params: list[nn.Parameter]) -> list[Bucket]:
        keys = [self._key(param) for param in params]
        max_size = self._config.ddp_bucket_size or max(40_000_000, 1_000_000 * self._dp.size)
        plan = plan_buckets(keys, [param.numel() for param in params], max_size)
        return [make_bucket(keys[members[0]], [params[i] for i in members], self._dp.size) for members in plan]

    def _key(self, param: nn.Parameter) -> BucketKey:
        spec = param.spec
        tie = spec.name if spec.name in self._ties else None
        assert tie or not spec.tie_copy, f"{spec.name}: a copy of a tied parameter needs the group of its holders"
        return BucketKey(param.dtype, spec.reduce_axes, spec.decay, spec.sharded, spec.tie_copy, tie)

    def _reduce_parts(self, buckets: Sequence[Bucket], groups: Sequence[Group]) -> None:
        handles = []
        for bucket, group in zip(buckets, groups):
            start, stop = self._updated(bucket)
            handles.append(start_all_reduce(bucket.grad[start:stop], group))
        for handle in handles:
            handle.wait()

    def _slice(self, bucket: Bucket) -> FlatSlice:
        start, stop = self._updated(bucket)
        return FlatSlice(
            param=bucket.param[start:stop],
            grad=bucket.grad[start:stop],
            decay=bucket.key.decay,
            specs=tuple(entry.param.spec for entry in bucket.entries),
            segments=tuple(_segments(bucket, start, stop)),
            share=self._share(bucket, start),
        )

    def _share(self, bucket: Bucket, start: int) -> tuple[int, int]:
        """This rank's share of what replicas hold alike, in positions of the slice that begins at ``start``."""
        if not bucket.key.sharded and self._context.coords.tp > 0:
            return 0, 0
        low, high = bucket.part(self._dp.rank, self._dp.size)
        return low - start, high - start


def _segments(bucket: Bucket, start: int, stop: int) -> Iterable[Segment]:
    """The parameters in ``[start, stop)`` of a bucket, with offsets from ``start``."""
    for param, at in bucket.entries:
        whole = Segment(param.spec, 0, param.spec.box.numel, at)
        part = whole.within(start, stop)
        if part is not None:
            yield Segment(part.spec, part.start, part.stop, part.offset - start)
