"""Adam with decoupled weight decay (AdamW; Loshchilov and Hutter 2019)."""

from dataclasses import dataclass
from typing import ClassVar, Mapping

import torch

from megalite.config import OptimizerConfig
from megalite.ops.adamw import AdamW, adamw_
from megalite.optim.rule import Step


@dataclass(frozen=True)
class Rule:
    beta1: float
    beta2: float
    eps: float
    granularity: ClassVar = "element"
    slots: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "Rule":
        return cls(config.adam_beta1, config.adam_beta2, config.adam_eps)

    def update(self, param: torch.Tensor, grad: torch.Tensor, state: Mapping[str, torch.Tensor], step: Step) -> None:
        self.update_and_copy(param, grad, state, step, None)

    def update_and_copy(
        self,
        param: torch.Tensor,
        grad: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        step: Step,
        copy: torch.Tensor | None,
    ) -> None:
        numbers = AdamW(
            lr=step.lr,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=step.weight_decay,
            step=step.number,
            grad_factor=step.grad_factor,
        )
        adamw_(param, grad, (state["exp_avg"], state["exp_avg_sq"]), numbers, copy)
