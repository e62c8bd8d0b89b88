"""Stochastic gradient descent with momentum; weight decay is added to the gradient, as in ``torch.optim.SGD``."""

from dataclasses import dataclass
from typing import ClassVar, Mapping

import torch

from megalite.config import OptimizerConfig
from megalite.optim.rule import Step


@dataclass(frozen=True)
class Rule:
    momentum: float
    granularity: ClassVar = "element"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "Rule":
        return cls(config.sgd_momentum)

    def update(self, param: torch.Tensor, grad: torch.Tensor, state: Mapping[str, torch.Tensor], step: Step) -> None:
        velocity = state["momentum"]
        velocity.mul_(self.momentum).add_(grad, alpha=step.grad_factor).add_(param, alpha=step.weight_decay)
        param.add_(velocity, alpha=-step.lr)
