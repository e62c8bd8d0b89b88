"""Sum of squares of a flat tensor, accumulated in float64 without a float64 copy of the whole."""

import torch

from megalite.ops.kernels import find

KERNELS = ("sum_of_squares",)

_CHUNK = {"cpu": 1 << 17, "cuda": 1 << 24}
"""Elements that are widened at once: on the CPU what stays in its cache, on a GPU what keeps it busy."""
_BLOCK = 1 << 16
"""Elements whose sum a kernel stores, so that the total does not depend on the number of threads."""


def sum_of_squares(tensor: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """The sum of squares of a 1-d tensor of any floating dtype, as a float64 scalar on its device, in one pass.

    It is nan or infinite if an element is, and for float32 elements only then. With a ``factor`` other than 1, the
    tensor is first multiplied by it in place, as part of the pass.
    """
    kernels = find(KERNELS, tensor)
    if kernels is None or not tensor.is_contiguous():
        return reference_sum_of_squares(tensor, factor)
    partial = tensor.new_empty(-(-tensor.numel() // _BLOCK), dtype=torch.float64)
    kernels("sum_of_squares", partial, tensor, tensor.numel(), factor, tensor.dtype)
    return partial.sum()


def reference_sum_of_squares(tensor: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """:func:`sum_of_squares` in plain torch."""
    total = torch.zeros((), dtype=torch.float64, device=tensor.device)
    for chunk in tensor.split(_CHUNK[tensor.device.type]):
        wide = (chunk if factor == 1.0 else chunk.mul_(factor)).double()
        total += torch.dot(wide, wide)
    return total
