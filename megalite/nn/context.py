"""LayerContext: all that a layer may know of its surroundings."""

from dataclasses import dataclass, field

import torch

from megalite.nn.wgrad import WeightGradQueue
from megalite.parallel.group import Group


@dataclass(frozen=True)
class Fusions:
    """Which fused kernels are used where there are any; each field is a flag ``--no-<name>-fusion``.

    What is switched off is computed by the op's reference in plain torch, with the same results but for rounding.
    """

    masked_softmax: bool = True
    bias_gelu: bool = True
    bias_swiglu: bool = True
    bias_dropout: bool = True
    rope: bool = True
    gradient_accumulation: bool = True
    cross_entropy_loss: bool = True


@dataclass(frozen=True)
class LayerContext:
    """The tensor-parallel group and the few facts that every layer shares."""

    tp: Group = field(default_factory=lambda: Group.single("tp"))
    sequence_parallel: bool = False
    """Split activations between tensor-parallel regions along the sequence (dim 0). No effect in a group of one."""
    dtype: torch.dtype = torch.float32
    """Of parameters and activations."""
    device: torch.device = torch.device("cpu")
    seed: int = 1234
    wgrad: WeightGradQueue = field(default_factory=WeightGradQueue)
    fusions: Fusions = Fusions()

    @property
    def sequence_axes(self) -> tuple[str, ...]:
        """Axes over which the gradient of a replicated parameter is a partial sum when its layer works on a part of the
        sequence: what such a parameter's ``reduce_axes`` must be."""
        return ("tp",) if self.sequence_parallel and self.tp.size > 1 else ()
