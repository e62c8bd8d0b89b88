"""Normalisation over the last dim: LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019).

A float32 input to parameters of 16 bits, as the float32 residual stream is, is normed in float32; the output has the
parameters' dtype.
"""

import torch
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext
from megalite.nn.parameter import make_parameter
from megalite.ops.layer_norm import add_layer_norm_, layer_norm
from megalite.ops.rms_norm import add_rms_norm_, rms_norm
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
        y = layer_norm(x, self.weight.to(x.dtype), self.bias.to(x.dtype), self.epsilon)
        return y.to(self.weight.dtype)

    def of_sum(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm of the sum, the sum in the residual's dtype), in one pass; ``x`` may be overwritten."""
        dtype = residual.dtype
        y, total = add_layer_norm_(x.to(dtype), residual, self.weight.to(dtype), self.bias.to(dtype), self.epsilon)
        return y.to(self.weight.dtype), total


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * weight, in float32 inside for 16-bit inputs."""

    def __init__(self, name: str, size: int, epsilon: float, ctx: LayerContext, reduce_axes: tuple[str, ...] = ()):
        super().__init__()
        self.epsilon = epsilon
        self.weight = _vector(f"{name}.weight", size, "ones", ctx, reduce_axes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight.to(x.dtype), self.epsilon).to(self.weight.dtype)

    def of_sum(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm of the sum, the sum in the residual's dtype), in one pass; ``x`` may be overwritten."""
        dtype = residual.dtype
        y, total = add_rms_norm_(x.to(dtype), residual, self.weight.to(dtype), self.epsilon)
        return y.to(self.weight.dtype), total
