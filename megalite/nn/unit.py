"""Unit: the piece of a model that the pipeline places. A model is a list of units."""

from dataclasses import dataclass
from typing import Callable, Literal, Mapping

import torch
from torch import nn

from megalite.nn.context import LayerContext

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Unit:
    """A description from which a rank that owns the unit builds its module, and no other rank builds anything.

    The module maps (carry, batch) to the next carry, all of them dicts of named tensors; the head returns ``loss_sum``
    and ``num_tokens``, scalars over the micro-batch's unmasked tokens. It must leave the tensors of carry and batch as
    they are.
    """

    name: str
    """``embedding``, ``layers.3``, ``head``."""
    kind: Literal["embedding", "layer", "head"]
    build: Callable[[LayerContext, Mapping[str, nn.Parameter]], nn.Module]
    """Makes the module. The mapping holds the parameters that this rank already has, by canonical name, for ties."""
    cost: float
    """Forward FLOPs per token: what a balanced split weighs."""
    batch_fields: frozenset[str]
    """Fields of the batch that the module reads where the batch has them."""
    ties: tuple[str, ...] = ()
    """Canonical names of parameters that this unit shares with an earlier one."""
