"""Recomputation: keep the input of some layers only, and compute their activations again in the backward pass.

There is no random state to restore (dropout is a function of the sample), so a second run is the first one again.
"""

from dataclasses import dataclass, replace
from typing import Any, Callable, Literal, Mapping, Sequence

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from megalite.nn.context import LayerContext
from megalite.nn.unit import Tensors, Unit


def checkpointed(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``, keeping only ``args`` for the backward pass. Weight gradients are accumulated once."""
    if not torch.is_grad_enabled():
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)


@dataclass(frozen=True)
class RecomputePlan:
    """Which activations are dropped in the forward pass."""

    granularity: Literal["full", "selective"] | None = None
    """Whole layers (full), or only the attention core (selective)."""
    method: Literal["uniform", "block"] = "uniform"
    """Full: all layers of a stage, in groups of ``num_layers`` with one input kept for each group (uniform), or its
    first ``num_layers``, each alone (block)."""
    num_layers: int = 1

    @property
    def core_attention(self) -> bool:
        return self.granularity == "selective"

    def apply(self, stage: Sequence[Unit]) -> list[Unit]:
        """The units of one virtual stage, with those units replaced that are to be recomputed as a whole."""
        layers = [unit for unit in stage if unit.kind == "layer"]
        if self.granularity != "full" or not layers:
            return list(stage)
        if self.method == "block":
            groups = [[unit] for unit in layers[: self.num_layers]]
        else:
            groups = [layers[at : at + self.num_layers] for at in range(0, len(layers), self.num_layers)]
        merged = {group[0].name: _merge(group) for group in groups}
        absorbed = {unit.name for group in groups for unit in group[1:]}
        return [merged.get(unit.name, unit) for unit in stage if unit.name not in absorbed]


def _merge(group: Sequence[Unit]) -> Unit:
    """One unit that runs the group's units as one checkpointed piece."""

    def build(ctx: LayerContext, held: Mapping[str, nn.Parameter]) -> nn.Module:
        return Recomputed([unit.build(ctx, held) for unit in group])

    fields = frozenset().union(*(unit.batch_fields for unit in group))
    name = group[0].name if len(group) == 1 else f"{group[0].name}-{group[-1].name.removeprefix('layers.')}"
    return replace(group[0], name=name, build=build, cost=sum(unit.cost for unit in group), batch_fields=fields)


class Recomputed(nn.Module):
    """Units in sequence, of which only the input is kept."""

    def __init__(self, modules: Sequence[nn.Module]):
        super().__init__()
        self.units = nn.ModuleList(modules)

    def forward(self, carry: Tensors, batch: Tensors) -> Tensors:
        return checkpointed(self._run, carry, batch)

    def _run(self, carry: Tensors, batch: Tensors) -> Tensors:
        for unit in self.units:
            carry = unit(carry, batch)
        return carry
