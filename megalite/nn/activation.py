"""The MLP's activations: from the up projection's product and its bias, or None, to the down projection's input."""

from functools import partial
from typing import Callable

import torch
import torch.nn.functional as F

from megalite.nn.context import Fusions
from megalite.ops.bias_gelu import bias_gelu
from megalite.ops.squared_relu import squared_relu
from megalite.ops.swiglu import swiglu

Activation = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


def relu(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """relu(x + bias)."""
    return F.relu(x if bias is None else x + bias)


def make_activation(name: str, fusions: Fusions) -> Activation:
    """The activation that :attr:`megalite.config.ModelConfig.activation` names."""
    activations: dict[str, Activation] = {
        "gelu": partial(bias_gelu, fused=fusions.bias_gelu),
        "swiglu": partial(swiglu, fused=fusions.bias_swiglu),
        "squared_relu": squared_relu,
        "relu": relu,
    }
    return activations[name]
