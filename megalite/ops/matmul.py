"""The three matrix products of a linear layer: forward, input gradient, weight gradient.

Results are tensors of their own, never views, so that a caller may write into them.

On the CPU, PyTorch sends float32 products to MKL, which on AMD processors is slower than oneDNN, the library that
PyTorch uses for 16-bit types: by up to a third on Zen 4, by half on Zen 5, as measured. There, float32 products go to
oneDNN: the same exact float32 arithmetic, summed in another order. Weight gradients, both of whose operands are
transposed, do only from Zen 5 on; before, MKL is faster at them. Which library is used is a function of the machine
alone; ``MEGALITE_MATMUL=onednn`` or ``torch`` decides otherwise, for all products. Where the operation is absent,
PyTorch's own is used.
"""

import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Mapping

import torch

from megalite.errors import ConfigError
from megalite.ops import accumulate

_ZEN_5 = 26
"""What Zen 5 calls its family; Zen 4 is 25."""


@dataclass(frozen=True)
class Cpu:
    """The processor as Linux names it."""

    vendor: str = ""
    """``AuthenticAMD``, ``GenuineIntel``, or empty where unknown."""
    family: int = 0


@dataclass(frozen=True)
class Choice:
    """The library of float32 products on the CPU, ``onednn`` or ``torch``."""

    products: str
    weight_grads: str
    reason: str


def choose(environment: Mapping[str, str], cpu: Cpu, available: bool) -> Choice:
    """The libraries to use where oneDNN's operation is ``available`` or not.

    Raises :class:`ConfigError` if MEGALITE_MATMUL names neither.
    """
    asked = environment.get("MEGALITE_MATMUL", "auto")
    if asked not in ("auto", "onednn", "torch"):
        raise ConfigError(f"MEGALITE_MATMUL must be auto, onednn or torch; given {asked!r}.")
    if asked == "torch":
        return Choice("torch", "torch", "MEGALITE_MATMUL=torch")
    if not available:
        return Choice("torch", "torch", "this build of PyTorch has no oneDNN linear operation")
    if asked == "onednn":
        return Choice("onednn", "onednn", "MEGALITE_MATMUL=onednn")
    if cpu.vendor != "AuthenticAMD":
        return Choice("torch", "torch", f"processor {cpu.vendor or 'unknown'}, where PyTorch's choice is as fast")
    if cpu.family >= _ZEN_5:
        return Choice("onednn", "onednn", "AMD processor of Zen 5 or later, where oneDNN is faster than MKL")
    return Choice("onednn", "torch", "AMD processor before Zen 5, where MKL is faster at weight gradients alone")


def this_cpu() -> Cpu:
    """The processor of this machine, as far as /proc/cpuinfo tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return Cpu()
    facts = dict(line.replace("\t", "").split(": ", 1) for line in reversed(lines) if ": " in line)
    family = facts.get("cpu family", "")
    return Cpu(facts.get("vendor_id", ""), int(family) if family.isdigit() else 0)


def _onednn_available() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def choice() -> Choice:
    """The choice of :func:`choose` for this process."""
    return choose(os.environ, this_cpu(), _onednn_available())


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias``: [..., in] to [..., out], weight [out, in]."""
    if _suits_onednn(x) and choice().products == "onednn":
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
    if _suits_onednn(grad) and choice().products == "onednn":
        return _onednn(grad, weight.t())
    x_grad = grad.new_empty(*grad.shape[:-1], weight.shape[1])
    torch.mm(grad.flatten(0, -2), weight, out=x_grad.view(-1, weight.shape[1]))
    return x_grad


def add_weight_grad(total: torch.Tensor, grad: torch.Tensor, x: torch.Tensor, fused: bool = True) -> None:
    """Add the gradient with respect to ``weight``, ``grad.T @ x`` over all leading dims, to ``total`` [out, in].

    ``total`` may be of a wider dtype than the operands, whose product is then rounded once before it is added; so it is
    with ``fused=False`` in any case.
    """
    grad, x = grad.flatten(0, -2), x.flatten(0, -2)
    if _suits_onednn(grad) and choice().weight_grads == "onednn":
        _onednn_add_weight_grad(total, grad, x)
    elif fused and total.dtype == grad.dtype:
        total.addmm_(grad.t(), x)
    else:
        accumulate.add_(total, grad.t() @ x)


def add_bias_grad(total: torch.Tensor, grad: torch.Tensor) -> None:
    """Add the gradient with respect to ``bias``, ``grad`` summed over all leading dims, to ``total`` [out]."""
    accumulate.add_column_sums_(total, grad.flatten(0, -2))


def _suits_onednn(x: torch.Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0


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
