"""RMSNorm over the last dim (Zhang and Sennrich 2019), alone or of the sum of two tensors."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from megalite.ops.kernels import Kernels, find, wide

KERNELS = ("rms_norm_forward", "rms_norm_backward")


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """``x / sqrt(mean(x^2) + epsilon) * weight``, in float32 inside for 16-bit inputs. ``weight``: [x.shape[-1]]."""
    assert weight.shape == x.shape[-1:], f"weight {tuple(weight.shape)} does not fit x {tuple(x.shape)}"
    return _RMSNorm.apply(x.contiguous(), None, weight.contiguous(), epsilon)[0]


def add_rms_norm_(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(:func:`rms_norm` of the sum ``x + residual``, the sum in the inputs' dtype) in one pass.

    The sum overwrites ``x``, which the backward of what made it must not need; a leaf that requires a gradient is
    refused by PyTorch.
    """
    assert weight.shape == x.shape[-1:], f"weight {tuple(weight.shape)} does not fit x {tuple(x.shape)}"
    assert residual.shape == x.shape, f"residual {tuple(residual.shape)} and x {tuple(x.shape)} do not match"
    return _RMSNorm.apply(x.contiguous(), residual.contiguous(), weight.contiguous(), epsilon)


class _RMSNorm(torch.autograd.Function):
    """Keeps the (summed) input and one number a row; plain autograd would keep several tensors of the input's size."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        ctx.kernels = find(KERNELS, x, residual, weight)
        if ctx.kernels is None:
            y, total, scale = reference_forward(x, residual, weight, epsilon)
        else:
            y, total, scale = _native_forward(ctx.kernels, x, residual, weight, epsilon)
        if total is not None:
            ctx.mark_dirty(total)
        ctx.save_for_backward(x if total is None else total, weight, scale)
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: torch.Tensor | None, total_grad: torch.Tensor | None) -> tuple:
        x, weight, scale = ctx.saved_tensors
        if y_grad is None:
            return total_grad, total_grad, None, None
        if ctx.kernels is None:
            x_grad, weight_grad = reference_backward(y_grad, total_grad, x, weight, scale)
        else:
            x_grad, weight_grad = _native_backward(ctx.kernels, y_grad, total_grad, x, weight, scale)
        return x_grad, x_grad if ctx.needs_input_grad[1] else None, weight_grad.to(weight.dtype), None


def reference_forward(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """(y, x with the residual added in place or None, factor of each row [..., 1])."""
    total = None if residual is None else x.add_(residual)
    values = wide(x if total is None else total)
    scale = torch.linalg.vector_norm(values, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return (values * scale).mul_(wide(weight)).to(x.dtype), total, scale


def reference_backward(
    y_grad: torch.Tensor, total_grad: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ``x`` and, in the wide dtype, of ``weight``."""
    normed, grad = wide(x) * scale, wide(y_grad)
    weight_grad = (grad * normed).flatten(0, -2).sum(0)
    direct = grad * wide(weight)
    along = (direct * normed).mean(-1, keepdim=True)
    x_grad = direct.sub_(normed.mul_(along)).mul_(scale)
    if total_grad is not None:
        x_grad.add_(total_grad)
    return x_grad.to(x.dtype), weight_grad


def _native_forward(
    kernels: Kernels, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    cols = x.shape[-1]
    y, total = torch.empty_like(x), None if residual is None else x
    scale = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    kernels("rms_norm_forward", y, total, x, residual, weight, scale, scale.numel(), cols, epsilon, x.dtype)
    return y, total, scale


def _native_backward(
    kernels: Kernels,
    y_grad: torch.Tensor,
    total_grad: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, cols, blocks = scale.numel(), x.shape[-1], kernels.blocks(scale.numel())
    x_grad, weight_grad = torch.empty_like(x), x.new_empty(cols, dtype=torch.float32)
    partial = x.new_empty((blocks, cols), dtype=torch.float32)
    y_grad, total_grad = y_grad.contiguous(), None if total_grad is None else total_grad.contiguous()
    kernels(
        "rms_norm_backward",
        x_grad,
        weight_grad,
        partial,
        y_grad,
        total_grad,
        x,
        weight,
        scale,
        rows,
        cols,
        blocks,
        x.dtype,
    )
    return x_grad, weight_grad
