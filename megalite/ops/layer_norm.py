"""LayerNorm over the last dim (Ba et al. 2016), alone or of the sum of two tensors."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from megalite.ops.kernels import Kernels, find, wide

KERNELS = ("layer_norm_forward", "layer_norm_backward")


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float) -> torch.Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias``, in float32 inside for 16-bit inputs.

    ``weight`` and ``bias``: [x.shape[-1]].
    """
    _check(x, weight, bias)
    return _LayerNorm.apply(x.contiguous(), None, weight.contiguous(), bias.contiguous(), epsilon)[0]


def add_layer_norm_(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(:func:`layer_norm` of the sum ``x + residual``, the sum in the inputs' dtype) in one pass.

    The sum overwrites ``x``, which the backward of what made it must not need; a leaf that requires a gradient is
    refused by PyTorch.
    """
    _check(x, weight, bias)
    assert residual.shape == x.shape, f"residual {tuple(residual.shape)} and x {tuple(x.shape)} do not match"
    return _LayerNorm.apply(x.contiguous(), residual.contiguous(), weight.contiguous(), bias.contiguous(), epsilon)


def _check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    assert weight.shape == x.shape[-1:], f"weight {tuple(weight.shape)} does not fit x {tuple(x.shape)}"
    assert bias.shape == x.shape[-1:], f"bias {tuple(bias.shape)} does not fit x {tuple(x.shape)}"


class _LayerNorm(torch.autograd.Function):
    """Keeps the (summed) input and two numbers a row."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor,
        epsilon: float,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        ctx.kernels = find(KERNELS, x, residual, weight, bias)
        if ctx.kernels is None:
            y, total, mean, scale = reference_forward(x, residual, weight, bias, epsilon)
        else:
            y, total, mean, scale = _native_forward(ctx.kernels, x, residual, weight, bias, epsilon)
        if total is not None:
            ctx.mark_dirty(total)
        ctx.save_for_backward(x if total is None else total, weight, mean, scale)
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: torch.Tensor | None, total_grad: torch.Tensor | None) -> tuple:
        x, weight, mean, scale = ctx.saved_tensors
        if y_grad is None:
            return total_grad, total_grad, None, None, None
        if ctx.kernels is None:
            x_grad, weight_grad, bias_grad = reference_backward(y_grad, total_grad, x, weight, mean, scale)
        else:
            x_grad, weight_grad, bias_grad = _native_backward(ctx.kernels, y_grad, total_grad, x, weight, mean, scale)
        residual_grad = x_grad if ctx.needs_input_grad[1] else None
        return x_grad, residual_grad, weight_grad.to(weight.dtype), bias_grad.to(weight.dtype), None


def reference_forward(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """(y, x with the residual added in place or None, mean and factor of each row [..., 1])."""
    total = None if residual is None else x.add_(residual)
    values = x if total is None else total
    y, mean, scale = torch.native_layer_norm(wide(values), weight.shape, wide(weight), wide(bias), epsilon)
    return y.to(x.dtype), total, mean, scale


def reference_backward(
    y_grad: torch.Tensor,
    total_grad: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    scale: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of ``x`` and, in the wide dtype, of ``weight`` and ``bias``."""
    x_grad, weight_grad, bias_grad = torch.ops.aten.native_layer_norm_backward(
        wide(y_grad).contiguous(), wide(x), weight.shape, mean, scale, wide(weight), wide(weight), [True, True, True]
    )
    if total_grad is not None:
        x_grad.add_(total_grad)
    return x_grad.to(x.dtype), weight_grad, bias_grad


def _native_forward(
    kernels: Kernels,
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    cols = x.shape[-1]
    y, total = torch.empty_like(x), None if residual is None else x
    mean, scale = x.new_empty((2, *x.shape[:-1], 1), dtype=torch.float32)
    kernels(
        "layer_norm_forward", y, total, x, residual, weight, bias, mean, scale, scale.numel(), cols, epsilon, x.dtype
    )
    return y, total, mean, scale


def _native_backward(
    kernels: Kernels,
    y_grad: torch.Tensor,
    total_grad: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    scale: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, cols, blocks = scale.numel(), x.shape[-1], kernels.blocks(scale.numel())
    x_grad = torch.empty_like(x)
    weight_grad, bias_grad = x.new_empty((2, cols), dtype=torch.float32)
    partial = x.new_empty((2, blocks, cols), dtype=torch.float32)
    y_grad, total_grad = y_grad.contiguous(), None if total_grad is None else total_grad.contiguous()
    kernels(
        "layer_norm_backward",
        *(x_grad, weight_grad, bias_grad, partial, y_grad, total_grad, x, weight, mean, scale),
        *(rows, cols, blocks, x.dtype),
    )
    return x_grad, weight_grad, bias_grad
