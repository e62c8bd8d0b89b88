"""Squared ReLU (So et al. 2021) of a sum with a bias."""

import torch
import torch.nn.functional as F

from megalite.ops.activation import Activation


def _value(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square_()


def _gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).mul_(grad).mul_(2)


_SQUARED_RELU = Activation("squared_relu", _value, _gradient)
KERNELS = _SQUARED_RELU.kernels


def squared_relu(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """relu(x + bias)^2, of the shape of ``x``; ``bias``: [x.shape[-1]]."""
    return _SQUARED_RELU(x, bias)
