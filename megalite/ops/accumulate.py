"""Adding to a gradient in place what comes in a narrower dtype.

PyTorch first makes a copy in the wider dtype of what it sums or adds on the CPU. Kernels there do not.
"""

import torch

from megalite.ops.kernels import Kernels, find

KERNELS = ("add_column_sums", "add_elements")


def add_(total: torch.Tensor, x: torch.Tensor) -> None:
    """``total += x``, tensors of one shape."""
    assert total.shape == x.shape, f"total {tuple(total.shape)} and x {tuple(x.shape)} do not match"
    kernels = _kernels(total, x)
    if kernels is None:
        total.add_(x)
    else:
        kernels("add_elements", total, x.contiguous(), x.numel(), x.dtype)


def add_column_sums_(total: torch.Tensor, x: torch.Tensor) -> None:
    """Add the sums over the rows of ``x`` [rows, cols] to ``total`` [cols], summed in the dtype of ``total``."""
    assert total.shape == x.shape[1:], f"total {tuple(total.shape)} does not fit x {tuple(x.shape)}"
    kernels, (rows, cols) = _kernels(total, x), x.shape
    if kernels is None:
        total.add_(x.sum(0, dtype=total.dtype))
        return
    blocks = kernels.blocks(rows)
    partial = total.new_empty((blocks, cols))
    kernels("add_column_sums", total, partial, x.contiguous(), rows, cols, blocks, x.dtype)


def _kernels(total: torch.Tensor, x: torch.Tensor) -> Kernels | None:
    return find(KERNELS, x) if total.dtype == torch.float32 and total.is_contiguous() else None
