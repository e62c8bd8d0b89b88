"""Autograd regions of tensor and sequence parallelism: each forward collective with its transpose as backward.

Shapes: activations are [sequence, batch, features]. "tp" regions act on the last dim or on whole tensors, "sp"
regions on dim 0, the sequence. See Shoeybi et al. 2019 (f and g), Korthikanti et al. 2022 (g and g-bar).
"""

from typing import Any

import torch

from megalite.parallel.collectives import all_gather, all_reduce, reduce_scatter
from megalite.parallel.group import Group


def _own_part(x: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    size = x.shape[dim]
    assert size % group.size == 0, f"dim {dim} of {tuple(x.shape)} must be divisible by {group.size} ranks"
    return x.tensor_split(group.size, dim)[group.rank].contiguous()


def _gather_last(x: torch.Tensor, group: Group) -> torch.Tensor:
    stacked = all_gather(x.unsqueeze(0), group)
    return torch.cat(stacked.unbind(0), dim=-1)


class _CopyToTp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return all_reduce(grad.clone(), ctx.group), None


class _ReduceFromTp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        return all_reduce(x.clone(), group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return grad, None


class _ScatterToTp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return _own_part(x, group, -1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return _gather_last(grad, ctx.group), None


class _GatherFromTp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return _gather_last(x, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return _own_part(grad, ctx.group, -1), None


class _ScatterToSp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return _own_part(x, group, 0)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return all_gather(grad, ctx.group), None


class _GatherFromSp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Group, partial_grad: bool) -> torch.Tensor:
        ctx.group, ctx.partial_grad = group, partial_grad
        return all_gather(x, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        part = reduce_scatter(grad, ctx.group) if ctx.partial_grad else _own_part(grad, ctx.group, 0)
        return part, None, None


class _ReduceScatterToSp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return reduce_scatter(x, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return all_gather(grad, ctx.group), None


def copy_to_tp(x: torch.Tensor, group: Group) -> torch.Tensor:
    """Identity; the gradient, a partial sum on each rank, is all-reduced (f)."""
    return x if group.size == 1 else _CopyToTp.apply(x, group)


def reduce_from_tp(x: torch.Tensor, group: Group) -> torch.Tensor:
    """All-reduce of partial sums; the gradient passes unchanged (g)."""
    return x if group.size == 1 else _ReduceFromTp.apply(x, group)


def scatter_to_tp(x: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's part of the last dim; the gradient is gathered."""
    return x if group.size == 1 else _ScatterToTp.apply(x, group)


def gather_from_tp(x: torch.Tensor, group: Group) -> torch.Tensor:
    """All parts of the last dim; the gradient, equal on all ranks, is split."""
    return x if group.size == 1 else _GatherFromTp.apply(x, group)


def scatter_to_sp(x: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's part of the sequence; the gradient is gathered."""
    return x if group.size == 1 else _ScatterToSp.apply(x, group)


def gather_from_sp(x: torch.Tensor, group: Group, partial_grad: bool = True) -> torch.Tensor:
    """The whole sequence. The gradient is reduce-scattered if each rank has a partial sum of it
    (``partial_grad``: a column-parallel product follows), or split if all ranks have the same."""
    return x if group.size == 1 else _GatherFromSp.apply(x, group, partial_grad)


def reduce_scatter_to_sp(x: torch.Tensor, group: Group) -> torch.Tensor:
    """Sum of partial sums, of which this rank keeps its part of the sequence; the gradient is gathered (g-bar)."""
    return x if group.size == 1 else _ReduceScatterToSp.apply(x, group)
