"""The MLP's activations, each from the up projection's output to the down projection's input."""

from typing import Any, Callable

import torch
import torch.nn.functional as F


def squared_relu(x: torch.Tensor) -> torch.Tensor:
    """relu(x)^2 (So et al. 2021)."""
    return F.relu(x).square()


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU in its tanh form (Hendrycks and Gimpel 2016)."""
    return F.gelu(x, approximate="tanh")


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, where gate and up are the two halves of the last dim (Shazeer 2020)."""
    return _SwiGLU.apply(x)


class _SwiGLU(torch.autograd.Function):
    """Keeps its input only."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        gate, up = x.chunk(2, dim=-1)
        x_grad = torch.empty_like(x)
        gate_grad, up_grad = x_grad.chunk(2, dim=-1)
        torch.mul(F.silu(gate), grad, out=up_grad)
        torch.mul(torch.ops.aten.silu_backward(grad, gate), up, out=gate_grad)
        return x_grad


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": gelu,
    "swiglu": swiglu,
    "squared_relu": squared_relu,
    "relu": F.relu,
}
