"""What the fused activations share: an elementwise function after a bias, whose gradient is summed in the same pass."""

from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch.autograd.function import once_differentiable

from megalite.ops.kernels import find, wide


@dataclass(frozen=True)
class Activation:
    """An activation by its kernels' name and its reference, which sees values in the wide dtype."""

    name: str
    """The kernels are ``<name>_forward`` and ``<name>_backward``."""
    value: Callable[[torch.Tensor], torch.Tensor]
    gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """(gradient of the value, argument) -> gradient of the argument."""
    halves: int = 1
    """The argument's width is this many times the value's."""

    @property
    def kernels(self) -> tuple[str, str]:
        return f"{self.name}_forward", f"{self.name}_backward"

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None, fused: bool = True) -> torch.Tensor:
        """The activation of ``x + bias``, in float32 inside for 16-bit inputs; ``bias``: [x.shape[-1]]."""
        assert x.shape[-1] % self.halves == 0, f"{self.name}: the width of x {tuple(x.shape)} must be even"
        if bias is not None:
            assert bias.shape == x.shape[-1:], f"{self.name}: bias {tuple(bias.shape)} does not fit x {tuple(x.shape)}"
            bias = bias.contiguous()
        return _Activate.apply(x.contiguous(), bias, self, fused)


class _Activate(torch.autograd.Function):
    """Keeps its input only."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, activation: Activation, fused: bool
    ) -> torch.Tensor:
        ctx.activation, ctx.kernels = activation, find(activation.kernels, x, bias, fused=fused)
        ctx.save_for_backward(x, bias)
        if ctx.kernels is None:
            return activation.value(_argument(x, bias)).to(x.dtype)
        cols = x.shape[-1] // activation.halves
        y = x.new_empty((*x.shape[:-1], cols))
        ctx.kernels(activation.kernels[0], y, x, bias, _num_rows(x), cols, x.dtype)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: torch.Tensor) -> tuple:
        x, bias = ctx.saved_tensors
        activation = ctx.activation
        if ctx.kernels is None:
            x_grad = activation.gradient(wide(y_grad), _argument(x, bias))
            bias_grad = None if bias is None else x_grad.flatten(0, -2).sum(0).to(bias.dtype)
            return x_grad.to(x.dtype), bias_grad, None, None
        rows, blocks = _num_rows(x), ctx.kernels.blocks(_num_rows(x))
        x_grad, bias_grad, partial = torch.empty_like(x), None, None
        if bias is not None:
            bias_grad = x.new_empty(x.shape[-1], dtype=torch.float32)
            partial = x.new_empty((blocks, x.shape[-1]), dtype=torch.float32)
        sizes = rows, x.shape[-1] // activation.halves, blocks, x.dtype
        ctx.kernels(activation.kernels[1], x_grad, bias_grad, partial, y_grad.contiguous(), x, bias, *sizes)
        return x_grad, None if bias is None else bias_grad.to(bias.dtype), None, None


def _argument(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return wide(x) if bias is None else wide(x) + wide(bias)


def _num_rows(x: torch.Tensor) -> int:
    return x.numel() // x.shape[-1] if x.shape[-1] else 0
