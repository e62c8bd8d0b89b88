"""Dropout whose mask is a function of the sample's number and the element's place, not of any generator's state.

So the mask is the same whatever the micro-batch, data, tensor, sequence or pipeline parallel size, and when a layer is
computed again; `.eval()` turns it off.
"""

import torch
from torch import nn

from megalite.nn.context import LayerContext
from megalite.ops.dropout_residual import Mask, dropout_residual


class Dropout(nn.Module):
    """Drops elements of hidden states [s_local, b, h] with probability ``p``, in steps of 2^-16, and scales the others.

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
        return self._apply(x, None, batch) if self.active else x

    def add(self, x: torch.Tensor, residual: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """dropout(x) + residual in the residual's dtype; where there is no dropout, ``x`` may be overwritten."""
        if not self.active:
            return x.to(residual.dtype).add_(residual)
        return self._apply(x, residual, batch)

    def _apply(self, x: torch.Tensor, residual: torch.Tensor | None, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return dropout_residual(x, residual, None, self._mask(x, batch), fused=self.ctx.fusions.bias_dropout)

    def _mask(self, x: torch.Tensor, batch: dict[str, torch.Tensor]) -> Mask:
        sequence, first = x.shape[0], 0
        if self.ctx.sequence_parallel:
            first = self.ctx.tp.rank * sequence
            sequence *= self.ctx.tp.size
        positions = torch.arange(first, first + x.shape[0], device=x.device)
        rows = positions.unsqueeze(1) + batch["sample_ids"] * sequence
        return Mask(self.ctx.seed, self.name, rows.flatten(), self.p)
