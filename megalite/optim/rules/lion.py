"""Lion: the sign of an interpolated momentum, with decoupled weight decay (Chen et al. 2023, Algorithm 2)."""

from dataclasses import dataclass
from typing import ClassVar, Mapping

import torch

from megalite.config import OptimizerConfig
from megalite.optim.rule import Step


@dataclass(frozen=True)
class Rule:
    beta1: float
    """Weight of the momentum in the direction of the update."""
    beta2: float
    """Decay of the momentum."""
    granularity: ClassVar = "element"
    slots: ClassVar[tuple[str, ...]] = ("exp_avg",)

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "Rule":
        return cls(config.lion_beta1, config.lion_beta2)

    def update(self, param: torch.Tensor, grad: torch.Tensor, state: Mapping[str, torch.Tensor], step: Step) -> None:
        momentum = state["exp_avg"]
        param.mul_(1.0 - step.lr * step.weight_decay)
        # With d = grad - momentum, the new momentum is m = momentum + (1 - beta2) d and the direction, momentum +
        # (1 - beta1) d, is m + (beta2 - beta1) d: no tensor besides these three is needed.
        difference = grad.mul_(step.grad_factor).sub_(momentum)
        momentum.add_(difference, alpha=1.0 - self.beta2)
        direction = difference.mul_(self.beta2 - self.beta1).add_(momentum).sign_()
        param.sub_(direction, alpha=step.lr)
