"""Every collective of megalite. A no-op in a group of one; counts its bytes when asked.

This is the one file that follows PyTorch's renames: ``all_gather_into_tensor`` and ``reduce_scatter_tensor`` become
``all_gather_single`` and ``reduce_scatter_single`` from torch 2.13 on.
"""

from typing import Any

import torch
import torch.distributed as dist

from megalite.parallel import direct
from megalite.parallel.group import Group

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Done:
    """The handle of a communication that needed none."""

    def wait(self) -> None:
        """Return at once."""


Handle = dist.Work | direct.Exchange | Done


def _count(operation: str, tensor: torch.Tensor, group: Group) -> None:
    group.traffic.add(operation, group.axis, tensor.numel() * tensor.element_size())


def all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    """Reduce ``tensor`` in place over the group (``op``: sum, max or min) and return it."""
    start_all_reduce(tensor, group, op).wait()
    return tensor


def start_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> Handle:
    """Begin :func:`all_reduce`; the tensor is valid, and may be touched, only after ``wait()``."""
    if group.size == 1:
        return Done()
    _count("all_reduce", tensor, group)
    return dist.all_reduce(tensor, op=_OPS[op], group=group.pg, async_op=True)


def all_gather(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The tensors of all ranks, of equal shape, concatenated along dim 0."""
    gathered, handle = start_all_gather(tensor, group)
    handle.wait()
    return gathered


def start_all_gather(tensor: torch.Tensor, group: Group) -> tuple[torch.Tensor, Handle]:
    """Begin :func:`all_gather`; the result is valid after ``wait()``."""
    if group.size == 1:
        return tensor, Done()
    gathered = tensor.new_empty((group.size * tensor.shape[0],) + tensor.shape[1:])
    return gathered, start_all_gather_into(gathered, tensor.contiguous(), group)


def start_all_gather_into(gathered: torch.Tensor, tensor: torch.Tensor, group: Group) -> Handle:
    """Begin to gather ``tensor`` of every rank into ``gathered``, of ``size`` times its length; both contiguous.

    ``tensor`` may be this rank's own slice of ``gathered``.
    """
    if group.size == 1:
        if gathered.data_ptr() != tensor.data_ptr():
            gathered.copy_(tensor)
        return Done()
    _count("all_gather", tensor, group)
    if tensor.device.type == "cpu":
        return direct.start_all_gather(gathered, tensor, group)
    return _all_gather_single(gathered, tensor, group=group.pg, async_op=True)


def reduce_scatter(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Sum over the group; rank r keeps the r-th of ``size`` equal parts along dim 0."""
    part, handle = start_reduce_scatter(tensor, group)
    handle.wait()
    return part


def start_reduce_scatter(tensor: torch.Tensor, group: Group) -> tuple[torch.Tensor, Handle]:
    """Begin :func:`reduce_scatter`; the result is valid after ``wait()``."""
    if group.size == 1:
        return tensor, Done()
    assert tensor.shape[0] % group.size == 0, f"dim 0 of {tuple(tensor.shape)} must be divisible by {group.size}"
    part = tensor.new_empty((tensor.shape[0] // group.size,) + tensor.shape[1:])
    return part, start_reduce_scatter_into(part, tensor.contiguous(), group)


def start_reduce_scatter_into(part: torch.Tensor, tensor: torch.Tensor, group: Group) -> Handle:
    """Begin to sum ``tensor`` over the group into ``part``, the r-th of its equal slices on rank r; both contiguous."""
    if group.size == 1:
        if part.data_ptr() != tensor.data_ptr():
            part.copy_(tensor)
        return Done()
    _count("reduce_scatter", tensor, group)
    if tensor.device.type == "cpu":
        return direct.start_reduce_scatter(part, tensor, group)
    return _reduce_scatter_single(part, tensor, group=group.pg, async_op=True)


def broadcast(tensor: torch.Tensor, group: Group, source: int = 0) -> torch.Tensor:
    """Overwrite ``tensor`` in place with that of the group's ``source``-th member, and return it."""
    if group.size > 1:
        _count("broadcast", tensor, group)
        dist.broadcast(tensor, src=group.ranks[source], group=group.pg)
    return tensor


def gather_objects(value: Any, group: Group) -> list[Any]:
    """The picklable values of all members, in order, on every member. For start-up and errors, never for each step."""
    if group.size == 1:
        return [value]
    values: list[Any] = [None] * group.size
    dist.all_gather_object(values, value, group=group.pg)
    return values


def gather_objects_to(value: Any, group: Group, destination: int = 0) -> list[Any] | None:
    """The picklable values of all members, in order, on the group's ``destination``-th member; None on the others."""
    if group.size == 1:
        return [value]
    values: list[Any] | None = [None] * group.size if group.rank == destination else None
    dist.gather_object(value, values, dst=group.ranks[destination], group=group.pg)
    return values


def broadcast_object(value: Any, group: Group, source: int = 0) -> Any:
    """The picklable value of the group's ``source``-th member, on every member."""
    if group.size == 1:
        return value
    holder = [value]
    dist.broadcast_object_list(holder, src=group.ranks[source], group=group.pg)
    return holder[0]


def barrier(group: Group) -> None:
    """Wait until every member has come here."""
    if group.size > 1:
        dist.barrier(group=group.pg)
