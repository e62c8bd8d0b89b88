"""GELU in its tanh form (Hendrycks and Gimpel 2016) of a sum with a bias."""

import torch
import torch.nn.functional as F

from megalite.ops.activation import Activation


def _value(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.gelu_backward(grad, x, approximate="tanh")


_GELU = Activation("bias_gelu", _value, _gradient)
KERNELS = _GELU.kernels


def bias_gelu(x: torch.Tensor, bias: torch.Tensor | None = None, fused: bool = True) -> torch.Tensor:
    """gelu(x + bias), of the shape of ``x``; ``bias``: [x.shape[-1]]. Keeps ``x`` for the backward, not the sum."""
    return _GELU(x, bias, fused)
