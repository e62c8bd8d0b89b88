"""What an update rule is: the protocol that every file of ``optim/rules`` meets with its class ``Rule``."""

from dataclasses import dataclass
from typing import Mapping, Protocol

import torch

from megalite.config import OptimizerConfig


@dataclass(frozen=True)
class Step:
    """What an update depends on besides gradient and state."""

    number: int
    """Counts successful updates from 1."""
    lr: float
    weight_decay: float
    grad_factor: float = 1.0
    """The gradient of the update is ``grad * grad_factor``: one over the number of tokens, loss scale and clipping in one."""


class Rule(Protocol):
    """An update of single elements, so that it may run on any slice of any parameter."""

    slots: tuple[str, ...]
    """Names of the state tensors, each shaped like the parameter and zero before the first update."""

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "Rule":
        """The rule with the constants of the command line."""

    def update(self, param: torch.Tensor, grad: torch.Tensor, state: Mapping[str, torch.Tensor], step: Step) -> None:
        """Update ``param`` and ``state`` in place over flat float32 or float64 tensors. ``grad`` may be overwritten.

        Elements whose parameter, gradient and state are zero stay zero: padding takes part in the update.
        """
