"""Normalisation over the last dim: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).

A float32 input to parameters of 16 bits, as the float32 residual stream is, is normed in float32; the output has the
parameters' dtype.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext
from megalite.nn.parameter import make_parameter
from megalite.state import Box, Init, ParamSpec


def make_norm(name: str, size: int, model: ModelConfig, ctx: LayerContext, reduce_axes: tuple[str, ...]) -> nn.Module:
    """The norm that the model asks for, over ``size`` features, whole on every rank.

    ``reduce_axes``: the axes over which ranks feed it different parts of the activations.
    """
    kind = LayerNorm if model.normalization == "LayerNorm" else RMSNorm
    return kind(name, size, model.norm_epsilon, ctx, reduce_axes)


def _vector(name: str, size: int, kind: str, ctx: LayerContext, reduce_axes: tuple[str, ...]) -> nn.Parameter:
    return make_parameter(
        ParamSpec(name, (size,), Box.whole((size,)), Init(kind), decay=False, reduce_axes=reduce_axes), ctx
    )


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias."""

    def __init__(self, name: str, size: int, epsilon: float, ctx: LayerContext, reduce_axes: tuple[str, ...] = ()):
        super().__init__()
        self.epsilon = epsilon
        self.weight = _vector(f"{name}.weight", size, "ones", ctx, reduce_axes)
        self.bias = _vector(f"{name}.bias", size, "zeros", ctx, reduce_axes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return F.layer_norm(x, weight.shape, weight, bias, self.epsilon).to(self.weight.dtype)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * weight, in float32 inside for 16-bit inputs."""

    def __init__(self, name: str, size: int, epsilon: float, ctx: LayerContext, reduce_axes: tuple[str, ...] = ()):
        super().__init__()
        self.epsilon = epsilon
        self.weight = _vector(f"{name}.weight", size, "ones", ctx, reduce_axes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _RMSNorm.apply(x, self.weight.to(x.dtype), self.epsilon).to(self.weight.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class _RMSNorm(torch.autograd.Function):
    """Keeps the input and one number per row; plain autograd would keep several tensors of the input's size."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        wide = _wide(x)
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).mul_(_wide(weight)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        x, weight, scale = ctx.saved_tensors
        normed, wide_grad = _wide(x) * scale, _wide(grad)
        weight_grad = (wide_grad * normed).flatten(0, -2).sum(0).to(weight.dtype)
        direct = wide_grad * _wide(weight)
        along = (direct * normed).mean(-1, keepdim=True)
        return direct.sub_(normed.mul_(along)).mul_(scale).to(x.dtype), weight_grad, None
