"""SwiGLU (Shazeer 2020) of a sum with a bias."""

import torch
import torch.nn.functional as F

from megalite.ops.activation import Activation


def _value(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def _gradient(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    x_grad = torch.empty_like(x)
    gate_grad, up_grad = x_grad.chunk(2, dim=-1)
    torch.mul(F.silu(gate), grad, out=up_grad)
    torch.mul(torch.ops.aten.silu_backward(grad, gate), up, out=gate_grad)
    return x_grad


_SWIGLU = Activation("swiglu", _value, _gradient, halves=2)
KERNELS = _SWIGLU.kernels


def swiglu(x: torch.Tensor, bias: torch.Tensor | None = None, fused: bool = True) -> torch.Tensor:
    """silu(gate) * up, the two halves of the last dim of ``x + bias``; ``bias``: [x.shape[-1]]."""
    return _SWIGLU(x, bias, fused)
