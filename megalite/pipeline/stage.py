"""Stage: one virtual stage of the pipeline, consecutive units of the model. Only owned units are ever built."""

from typing import Callable, Sequence

import torch
from torch import nn

from megalite.nn.context import LayerContext
from megalite.nn.unit import Unit
from megalite.nn.wgrad import WeightGradQueue

Tensors = dict[str, torch.Tensor]


class Stage(nn.Module):
    """The modules of this stage's units, applied in order to a carry of named tensors."""

    def __init__(self, units: Sequence[Unit], modules: Sequence[nn.Module], wgrad: WeightGradQueue):
        super().__init__()
        self.names = tuple(unit.name for unit in units)
        self.batch_fields = frozenset().union(*(unit.batch_fields for unit in units))
        self.wgrad = wgrad
        self.units = nn.ModuleList(modules)
        self.before_unit: Callable[[nn.Module], None] | None = None
        """Called with each unit's module before it runs, so that parameters still on their way can be awaited."""

    def forward(self, carry: Tensors, batch: Tensors) -> Tensors:
        """Apply the units. The first stage's carry is empty; the last stage returns ``loss_sum`` and ``num_tokens``."""
        for module in self.units:
            if self.before_unit is not None:
                self.before_unit(module)
            carry = module(carry, batch)
        return carry


def build_stages(cut: Sequence[Sequence[Unit]], owned: Sequence[int], context: LayerContext) -> dict[int, Stage]:
    """Build the virtual stages ``owned`` by this rank, by global stage index.

    A tied parameter that the rank already holds is handed to the later unit, so that it stays one tensor.
    """
    held: dict[str, nn.Parameter] = {}
    stages = {}
    for index in sorted(owned):
        modules = []
        for unit in cut[index]:
            module = unit.build(context, held)
            held.update({parameter.spec.name: parameter for parameter in module.parameters()})
            modules.append(module)
        stages[index] = Stage(cut[index], modules, context.wgrad)
    return stages


def parameters_of(stages: dict[int, Stage]) -> list[nn.Parameter]:
    """All parameters of this rank in forward order, each once even if two units share it."""
    unique = {id(p): p for index in sorted(stages) for p in stages[index].parameters()}
    return list(unique.values())
