"""Buckets: parameters and main gradients laid out in flat buffers, in the order in which backward completes them."""

import math
from dataclasses import dataclass
from typing import Hashable, NamedTuple, Sequence

import torch
from torch import nn

ALIGNMENT = 64
"""Parameters and data-parallel slices start at multiples of this many elements: whole cache lines in every dtype, and
whole vectors, so that no element is rounded differently because it falls in the scalar tail of a kernel's loop."""


class BucketKey(NamedTuple):
    """What the parameters of a bucket have in common, so that each step of a strategy treats a bucket as one tensor."""

    dtype: torch.dtype
    reduce_axes: tuple[str, ...]
    """Axes besides data-parallel over which the gradients are still to be summed."""
    decay: bool
    sharded: bool
    """Whether other tensor-parallel ranks hold other parts of the parameters."""
    tie_copy: bool
    """Whether another rank answers for the parameters, which are kept equal to its own."""
    tie: str | None
    """Name of the parameter, if other pipeline ranks hold a copy of it; it has a bucket of its own."""


class Entry(NamedTuple):
    """A parameter and its first element in the bucket."""

    param: nn.Parameter
    start: int


@dataclass(frozen=True)
class Bucket:
    """Flat buffers of which parameters and their ``main_grad`` are views. Elements of no parameter stay zero."""

    key: BucketKey
    entries: tuple[Entry, ...]
    param: torch.Tensor
    grad: torch.Tensor

    def part(self, index: int, num_parts: int) -> tuple[int, int]:
        """The ``index``-th of ``num_parts`` equal ranges."""
        size = self.param.numel() // num_parts
        return index * size, (index + 1) * size


def plan_buckets(keys: Sequence[Hashable], sizes: Sequence[int], max_size: int) -> list[list[int]]:
    """Which parameters, given in forward order, make up which bucket.

    Each bucket lists parameters of one key in backward order, at most ``max_size`` elements unless a single one is
    larger. Buckets come in the order in which a backward pass completes them.
    """
    buckets: list[list[int]] = []
    filling: dict[Hashable, tuple[list[int], int]] = {}
    for index in reversed(range(len(keys))):
        bucket, filled = filling.get(keys[index], ([], 0))
        if not bucket or filled + sizes[index] > max_size:
            bucket, filled = [], 0
            buckets.append(bucket)
        bucket.append(index)
        filling[keys[index]] = bucket, filled + sizes[index]
    return sorted(buckets, key=lambda bucket: bucket[-1], reverse=True)


def make_bucket(key: BucketKey, params: Sequence[nn.Parameter], num_parts: int) -> Bucket:
    """Move ``params`` into new flat buffers whose length ``num_parts`` data-parallel ranks can share evenly.

    The parameters keep their identity: their ``data`` becomes a view, and ``main_grad`` is set.
    """
    starts, end = [], 0
    for param in params:
        starts.append(end)
        end += _round_up(param.numel(), ALIGNMENT)
    length = _round_up(end, ALIGNMENT * num_parts)
    flat = torch.zeros(length, dtype=key.dtype, device=params[0].device)
    grad_dtype = torch.float64 if key.dtype == torch.float64 else torch.float32
    grad = torch.zeros(length, dtype=grad_dtype, device=flat.device)
    for param, start in zip(params, starts):
        view = flat[start : start + param.numel()].view(param.shape)
        view.copy_(param.detach())
        param.data = view
        param.main_grad = grad[start : start + param.numel()].view(param.shape)
    return Bucket(key, tuple(map(Entry, params, starts)), flat, grad)


def _round_up(count: int, multiple: int) -> int:
    return math.ceil(count / multiple) * multiple
