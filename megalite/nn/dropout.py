"""Dropout whose mask is a function of the sample's number and the element's place, not of any generator's state.

So the mask is the same whatever the micro-batch, data, tensor, sequence or pipeline parallel size, and when a layer is
computed again; `.eval()` turns it off.
"""

from typing import Any

import torch
from torch import nn

from megalite.nn.context import LayerContext
from megalite.ops import philox


class Dropout(nn.Module):
    """Drops elements of hidden states [s_local, b, h] with probability ``p`` and scales the others by 1 / (1 - p).

    ``name`` tells this site from every other. The mask of element (position, h) of sample k is that of the stream of
    (seed, name) at ``(k * seq_length + position) * hidden + h``.
    """

    def __init__(self, name: str, p: float, ctx: LayerContext):
        super().__init__()
        self.name, self.p, self.ctx = f"dropout/{name}", p, ctx

    @property
    def active(self) -> bool:
        """Whether it changes its input; only then need a batch have sample ids."""
        return self.training and self.p > 0

    def forward(self, x: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if not self.active:
            return x
        sequence, first = x.shape[0], 0
        if self.ctx.sequence_parallel:
            first = self.ctx.tp.rank * sequence
            sequence *= self.ctx.tp.size
        positions = torch.arange(first, first + x.shape[0], device=x.device)
        rows = positions.unsqueeze(1) + batch["sample_ids"] * sequence
        keep = philox.keep_mask(self.ctx.seed, self.name, rows.flatten(), x.shape[-1], self.p)
        return apply_mask(x, keep.view(x.shape), self.p)


def apply_mask(x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
    """``x`` where ``keep``, scaled by 1 / (1 - p); 0 elsewhere. The backward needs only the mask, a byte an element."""
    return _Mask.apply(x, keep, 1 / (1 - p))


class _Mask(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, keep: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return torch.where(keep, x, 0).mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        (keep,) = ctx.saved_tensors
        return torch.where(keep, grad, 0).mul_(ctx.scale), None, None
