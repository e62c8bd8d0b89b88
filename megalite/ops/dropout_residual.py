"""Bias, dropout and residual in one pass, with the mask of :func:`megalite.ops.philox.keep_mask`."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from megalite.ops import philox
from megalite.ops.kernels import Kernels, find, wide

KERNELS = ("dropout_residual_forward", "dropout_residual_backward")


@dataclass(frozen=True)
class Mask:
    """Which elements are kept: those of :func:`megalite.ops.philox.keep_mask`."""

    seed: int
    purpose: str
    rows: torch.Tensor
    """Number of each row (int64): the mask of row r, column j is that of element ``r * columns + j`` of the stream."""
    p: float
    """Probability of dropping an element; rounded to a multiple of 2^-16, which must not be 1, nor 0 unless it is."""

    def keep(self, length: int) -> torch.Tensor:
        return philox.keep_mask(self.seed, self.purpose, self.rows, length, self.p)

    @property
    def scale(self) -> float:
        """Factor of the elements that are kept."""
        return philox.keep_scale(self.p)


def dropout_residual(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    bias: torch.Tensor | None,
    mask: Mask | None,
    fused: bool = True,
) -> torch.Tensor:
    """dropout(x + bias) + residual, in float32 inside for 16-bit inputs; each part but ``x`` may be absent.

    ``residual`` is of the shape of ``x`` and may be of a wider dtype, which the sum then has; ``bias``: [x.shape[-1]];
    ``mask.rows`` has a number for each row of ``x``. No mask is kept: the backward makes it again.
    """
    if residual is not None:
        assert residual.shape == x.shape, f"residual {tuple(residual.shape)} and x {tuple(x.shape)} do not match"
        residual, x = residual.contiguous(), x.to(residual.dtype)
    if bias is not None:
        assert bias.shape == x.shape[-1:], f"bias {tuple(bias.shape)} does not fit x {tuple(x.shape)}"
        bias = bias.to(x.dtype).contiguous()
    if mask is not None:
        num_rows = x.shape[:-1].numel()
        assert mask.rows.numel() == num_rows, f"{mask.rows.numel()} row numbers for {num_rows} rows"
    return _DropoutResidual.apply(x.contiguous(), residual, bias, mask, fused)


class _DropoutResidual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        bias: torch.Tensor | None,
        mask: Mask | None,
        fused: bool,
    ) -> torch.Tensor:
        ctx.kernels, ctx.mask = find(KERNELS, x, residual, bias, fused=fused), None
        if mask is not None:  # its tensor is kept where recomputation sees it, and frees it
            ctx.mask = replace(mask, rows=mask.rows.new_empty(0))
            ctx.save_for_backward(mask.rows)
        if ctx.kernels is None:
            return reference_forward(x, residual, bias, mask)
        y = torch.empty_like(x)
        rows, cols = x.shape[:-1].numel(), x.shape[-1]
        numbers = None if mask is None else mask.rows
        ctx.kernels("dropout_residual_forward", y, x, bias, residual, numbers, rows, cols, *_numbers(mask), x.dtype)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        needs_bias = ctx.needs_input_grad[2]
        mask = None if ctx.mask is None else replace(ctx.mask, rows=ctx.saved_tensors[0])
        if mask is None and not needs_bias:
            x_grad, bias_grad = grad, None
        elif ctx.kernels is None:
            x_grad, bias_grad = reference_backward(grad, mask, needs_bias)
        else:
            x_grad, bias_grad = _native_backward(ctx.kernels, grad.contiguous(), mask, needs_bias)
        return x_grad, grad if ctx.needs_input_grad[1] else None, bias_grad, None, None


def reference_forward(
    x: torch.Tensor, residual: torch.Tensor | None, bias: torch.Tensor | None, mask: Mask | None
) -> torch.Tensor:
    y = wide(x) if bias is None else wide(x) + wide(bias)
    if mask is not None:
        y = torch.where(mask.keep(x.shape[-1]).view(x.shape), y * mask.scale, 0)
    return (y if residual is None else y + residual).to(x.dtype)


def reference_backward(
    grad: torch.Tensor, mask: Mask | None, needs_bias: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    x_grad = wide(grad)
    if mask is not None:
        x_grad = torch.where(mask.keep(grad.shape[-1]).view(grad.shape), x_grad * mask.scale, 0)
    bias_grad = x_grad.flatten(0, -2).sum(0).to(grad.dtype) if needs_bias else None
    return x_grad.to(grad.dtype), bias_grad


def _native_backward(
    kernels: Kernels, grad: torch.Tensor, mask: Mask | None, needs_bias: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    rows, cols = grad.shape[:-1].numel(), grad.shape[-1]
    blocks = kernels.blocks(rows)
    x_grad, bias_grad, partial = torch.empty_like(grad), None, None
    if needs_bias:
        bias_grad = grad.new_empty(cols, dtype=torch.float32)
        partial = grad.new_empty((blocks, cols), dtype=torch.float32)
    numbers = None if mask is None else mask.rows
    kernels(
        "dropout_residual_backward",
        *(x_grad, bias_grad, partial, grad, numbers, rows, cols, blocks),
        *(*_numbers(mask), grad.dtype),
    )
    return x_grad, None if bias_grad is None else bias_grad.to(grad.dtype)


def _numbers(mask: Mask | None) -> tuple[int, int, int, float]:
    """The two key words, the threshold below which a random half drops its element, and the factor of the others."""
    if mask is None:
        return 0, 0, 0, 1.0
    return *philox.stream_key(mask.seed, mask.purpose), philox.drop_threshold(mask.p), mask.scale
