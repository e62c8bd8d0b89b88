"""Norms and counts over the whole model in which each global element counts once, equal bit for bit on every rank."""

from typing import Iterable, Sequence

import torch

from megalite.ops.norm import sum_of_squares
from megalite.optim.slices import FlatSlice
from megalite.parallel.collectives import all_reduce
from megalite.parallel.context import ParallelContext


def grad_norm(slices: Sequence[FlatSlice], context: ParallelContext, grad_factor: float) -> float:
    """The L2 norm of ``grad * grad_factor`` over the whole model.

    It is nan or infinite, on every rank, if and only if some float32 gradient of some rank is.
    """
    owned = (_owned(flat.grad, flat) for flat in slices)
    replicas = (flat.grad for flat in slices if flat.share == (0, 0))
    return _global_norm(owned, context, replicas) * grad_factor


def params_norm(slices: Sequence[FlatSlice], main_params: Sequence[torch.Tensor], context: ParallelContext) -> float:
    """The L2 norm of all main parameters, given one tensor a slice."""
    return _global_norm((_owned(main, flat) for main, flat in zip(main_params, slices)), context)


def clip_coefficient(norm: float, max_norm: float) -> float:
    """What gradients of norm ``norm`` are multiplied by so that it does not exceed ``max_norm``; 0: no limit."""
    return min(1.0, max_norm / (norm + 1e-6)) if max_norm > 0.0 else 1.0


def num_zeros(slices: Sequence[FlatSlice], context: ParallelContext) -> int:
    """How many elements of the gradient of the whole model are exactly zero."""
    zeros = torch.zeros((), dtype=torch.int64, device=context.device)
    for flat in slices:
        # Padding is zero, so it drops out of the count of non-zeros, and segments leave it out of the total.
        zeros += sum(segment.numel for segment in flat.owned_segments())
        zeros -= torch.count_nonzero(_owned(flat.grad, flat))
    return int(all_reduce(zeros, context.world).item())


def _global_norm(
    tensors: Iterable[torch.Tensor], context: ParallelContext, uncounted: Iterable[torch.Tensor] = ()
) -> float:
    total = torch.zeros((), dtype=torch.float64, device=context.device)
    for tensor in tensors:
        total += sum_of_squares(tensor)
    for tensor in uncounted:  # They add nothing while they are finite: 0 times infinity is nan.
        total += 0.0 * sum_of_squares(tensor)
    return all_reduce(total, context.world).sqrt().item()


def _owned(tensor: torch.Tensor, flat: FlatSlice) -> torch.Tensor:
    start, stop = flat.owned
    return tensor[start:stop]
