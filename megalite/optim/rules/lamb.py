"""LAMB: Adam's direction, scaled for each parameter to the parameter's own norm (You et al. 2020, Algorithm 2)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from megalite.config import OptimizerConfig
from megalite.ops.norm import sum_of_squares
from megalite.optim.rule import Step, Sums, TensorPart
from megalite.state import ParamSpec


@dataclass(frozen=True)
class Rule:
    beta1: float
    beta2: float
    eps: float
    granularity: ClassVar = "tensor"

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "Rule":
        return cls(config.adam_beta1, config.adam_beta2, config.adam_eps)

    def slots(self, spec: ParamSpec) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def factors(self, spec: ParamSpec) -> dict[str, tuple[int, ...]]:
        return {}

    def update(self, part: TensorPart, step: Step) -> Sums:
        direction = self._direction(part, step)
        norms = yield torch.stack([sum_of_squares(part.param[part.share]), sum_of_squares(direction[part.share])])
        of_param, of_direction = norms.sqrt().unbind()
        ratio = torch.where((of_param > 0) & (of_direction > 0), of_param / of_direction, 1.0)
        part.param.sub_(direction.mul_((ratio * step.lr).to(direction.dtype)))

    def _direction(self, part: TensorPart, step: Step) -> torch.Tensor:
        """Adam's step plus the decay of the weights, in the place of the gradient."""
        grad, mean, mean_square = part.grad.mul_(step.grad_factor), part.state["exp_avg"], part.state["exp_avg_sq"]
        mean.lerp_(grad, 1.0 - self.beta1)
        mean_square.mul_(self.beta2).addcmul_(grad, grad, value=1.0 - self.beta2)
        root = mean_square.sqrt().div_((1.0 - self.beta2**step.number) ** 0.5).add_(self.eps)
        torch.div(mean, root, out=grad).div_(1.0 - self.beta1**step.number)
        return grad.add_(part.param, alpha=step.weight_decay)
