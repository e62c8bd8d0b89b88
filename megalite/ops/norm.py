"""Sum of squares of a flat tensor, accumulated in float64 without a float64 copy of the whole."""

import torch

_CHUNK = {"cpu": 1 << 17, "cuda": 1 << 24}
"""Elements that are widened at once: on the CPU what stays in its cache, on a GPU what keeps it busy."""


def sum_of_squares(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of squares of a 1-d tensor of any floating dtype, as a float64 scalar on its device.

    It is nan or infinite if an element is, and for float32 elements only then.
    """
    total = torch.zeros((), dtype=torch.float64, device=tensor.device)
    for chunk in tensor.split(_CHUNK[tensor.device.type]):
        wide = chunk.double()
        total += torch.dot(wide, wide)
    return total
