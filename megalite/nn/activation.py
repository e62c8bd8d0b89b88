"""The MLP's activations: from the up projection's product and its bias, or None, to the down projection's input."""

from typing import Callable

import torch
import torch.nn.functional as F

from megalite.ops.bias_gelu import bias_gelu
from megalite.ops.squared_relu import squared_relu
from megalite.ops.swiglu import swiglu

Activation = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


def relu(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """relu(x + bias)."""
    return F.relu(x if bias is None else x + bias)


ACTIVATIONS: dict[str, Activation] = {
    "gelu": bias_gelu,
    "swiglu": swiglu,
    "squared_relu": squared_relu,
    "relu": relu,
}
