"""Rotary positions (Su et al. 2021): pairs of channels of queries and keys turn by an angle linear in the position."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from megalite.ops.kernels import Kernels, find

KERNELS = ("rotary",)


@dataclass(frozen=True)
class RotaryLayout:
    """Where the channels to rotate are in a tensor of [s, b, groups, heads, head dim], however it is shaped."""

    shape: tuple[int, ...]
    num_heads: int
    """The first so many heads of each group are rotated."""
    interleaved: bool
    """Pairs are channels (2i, 2i + 1), or else (i, half + i), of the rotated ones, which come first."""


def rotate_(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RotaryLayout, fused: bool = True
) -> torch.Tensor:
    """Rotate ``x`` in place by the angles of ``cos`` and ``sin`` [s, b, 1, 1, rotated channels / 2], and return it.

    ``x`` must be contiguous, a tensor of its own and not a view, that the backward of what made it does not need.
    ``cos`` and ``sin`` are in float32, or float64 for float64 ``x``.
    """
    assert cos.shape == sin.shape and cos.shape[:2] == layout.shape[:2], f"cos {tuple(cos.shape)}, x {layout.shape}"
    assert 2 * cos.shape[-1] <= layout.shape[-1], f"{cos.shape[-1]} pairs in heads of {layout.shape[-1]} channels"
    return _Rotate.apply(x, cos.contiguous(), sin.contiguous(), layout, find(KERNELS, x, fused=fused))


class _Rotate(torch.autograd.Function):
    """Keeps the angles only; its backward turns the other way."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        layout: RotaryLayout,
        kernels: Kernels | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.turn = Turn(layout, kernels)
        ctx.mark_dirty(x)
        ctx.turn(x, x, cos, sin, 1)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        cos, sin = ctx.saved_tensors
        grad = grad.contiguous()
        x_grad = torch.empty_like(grad)
        ctx.turn(x_grad, grad, cos, sin, -1)
        return x_grad, None, None, None, None


@dataclass(frozen=True)
class Turn:
    """Turns the pairs of a layout one way or the other."""

    layout: RotaryLayout
    kernels: Kernels | None

    def __call__(
        self, y: torch.Tensor, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, direction: int
    ) -> None:
        """Store ``x``, with its pairs turned, to ``y``, which may be ``x``."""
        if self.kernels is None:
            if y is not x:
                y.copy_(x)
            reference_rotate_(y, cos, sin * direction, self.layout)
            return
        sequence, batch_size, groups, heads, head_dim = self.layout.shape
        sizes = sequence * batch_size, groups, heads, self.layout.num_heads, head_dim, cos.shape[-1]
        self.kernels("rotary", y, x, cos, sin, *sizes, int(self.layout.interleaved), direction, x.dtype)


def reference_rotate_(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: RotaryLayout) -> None:
    first, second = _pairs(x.view(layout.shape)[..., : layout.num_heads, :], 2 * cos.shape[-1], layout.interleaved)
    turned = (first * cos).addcmul_(second, sin, value=-1)
    second.copy_((second * cos).addcmul_(first, sin))
    first.copy_(turned)


def _pairs(x: torch.Tensor, num_rotated: int, interleaved: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the first and second members of the rotated pairs of channels."""
    if interleaved:
        return x[..., 0:num_rotated:2], x[..., 1:num_rotated:2]
    return x[..., : num_rotated // 2], x[..., num_rotated // 2 : num_rotated]
