"""The three matrix products of a linear layer: forward, input gradient, weight gradient.

Results are tensors of their own, never views, so that a caller may write into them.

On the CPU, PyTorch sends float32 products to MKL, which on AMD processors runs at about half the speed of oneDNN, the
library that PyTorch uses for 16-bit types. There, float32 products go to oneDNN: the same exact float32 arithmetic,
summed in another order. Which library is used is a function of the machine alone; ``MEGALITE_MATMUL=onednn`` or
``torch`` decides otherwise. Where the operation is absent, PyTorch's own is used.
"""

import math
import os
from functools import cache
from pathlib import Path
from typing import Mapping

import torch

from megalite.errors import ConfigError


def choose_library(environment: Mapping[str, str], cpu_vendor: str, available: bool) -> tuple[str, str]:
    """(``onednn`` or ``torch``, why) for float32 products on the CPU.

    Raises :class:`ConfigError` if MEGALITE_MATMUL names neither.
    """
    asked = environment.get("MEGALITE_MATMUL", "auto")
    if asked not in ("auto", "onednn", "torch"):
        raise ConfigError(f"MEGALITE_MATMUL must be auto, onednn or torch; given {asked!r}.")
    if asked == "torch":
        return "torch", "MEGALITE_MATMUL=torch"
    if not available:
        return "torch", "this build of PyTorch has no oneDNN linear operation"
    if asked == "onednn":
        return "onednn", "MEGALITE_MATMUL=onednn"
    if cpu_vendor == "AuthenticAMD":
        return "onednn", "AMD processor, where oneDNN is faster than MKL"
    return "torch", f"processor {cpu_vendor or 'unknown'}, where PyTorch's choice is as fast"


def cpu_vendor() -> str:
    """The processor's vendor as Linux names it (``AuthenticAMD``, ``GenuineIntel``), or an empty string."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("vendor_id")), "")


def _onednn_available() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def library() -> tuple[str, str]:
    """The choice of :func:`choose_library` for this process."""
    return choose_library(os.environ, cpu_vendor(), _onednn_available())


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias``: [..., in] to [..., out], weight [out, in]."""
    if _by_onednn(x):
        return _onednn(x, weight, bias)
    y = x.new_empty(*x.shape[:-1], weight.shape[0])
    rows, out = x.flatten(0, -2), y.view(-1, weight.shape[0])
    if bias is None:
        torch.mm(rows, weight.t(), out=out)
    else:
        torch.addmm(bias, rows, weight.t(), out=out)
    return y


def input_grad(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Gradient of :func:`linear` with respect to ``x``: ``grad @ weight``, [..., out] to [..., in]."""
    if _by_onednn(grad):
        return _onednn(grad, weight.t())
    x_grad = grad.new_empty(*grad.shape[:-1], weight.shape[1])
    torch.mm(grad.flatten(0, -2), weight, out=x_grad.view(-1, weight.shape[1]))
    return x_grad


def add_weight_grad(total: torch.Tensor, grad: torch.Tensor, x: torch.Tensor) -> None:
    """Add the gradient with respect to ``weight``, ``grad.T @ x`` over all leading dims, to ``total`` [out, in].

    ``total`` may be of a wider dtype than the operands, whose product is then rounded once before it is added.
    """
    grad, x = grad.flatten(0, -2), x.flatten(0, -2)
    if _by_onednn(grad):
        _onednn_add_weight_grad(total, grad, x)
    elif total.dtype == grad.dtype:
        total.addmm_(grad.t(), x)
    else:
        total.add_(grad.t() @ x)


def add_bias_grad(total: torch.Tensor, grad: torch.Tensor) -> None:
    """Add the gradient with respect to ``bias``, ``grad`` summed over all leading dims, to ``total`` [out]."""
    total.add_(grad.flatten(0, -2).sum(0, dtype=total.dtype))


def _by_onednn(x: torch.Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0 and library()[0] == "onednn"


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.ops.mkldnn._linear_pointwise(x.flatten(0, -2), weight, bias, "none", [], "")
    # Not y.view(...): autograd forbids its users to write into a view that was made inside their function.
    shape = (*x.shape[:-1], weight.shape[0])
    return y.new_empty(0).set_(y.untyped_storage(), y.storage_offset(), shape, _contiguous_strides(shape))


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _onednn_add_weight_grad(total: torch.Tensor, grad: torch.Tensor, x: torch.Tensor) -> None:
    # oneDNN is fast when the product has no more rows than columns, so the transposed one is computed if need be.
    if grad.shape[1] <= x.shape[1]:
        total.add_(_onednn(grad.t(), x.t()))
    else:
        total.add_(_onednn(x.t(), grad.t()).t())
