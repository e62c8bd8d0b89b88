"""What an update rule is: every file of ``optim/rules`` defines a class ``Rule`` that meets one of two protocols."""

from dataclasses import dataclass
from typing import Generator, Literal, Mapping, Protocol, runtime_checkable

import torch

from megalite.config import OptimizerConfig
from megalite.state import ParamSpec

Sums = Generator[torch.Tensor, torch.Tensor, None]
"""An update that hands out partial sums and goes on with the whole ones."""


@dataclass(frozen=True)
class Step:
    """What an update depends on besides gradient and state."""

    number: int
    """Counts successful updates from 1."""
    lr: float
    weight_decay: float
    grad_factor: float = 1.0
    """The gradient of the update is ``grad * grad_factor``: number of tokens, loss scale and clipping in one."""


class ElementRule(Protocol):
    """An update of single elements, so that it may run on any slice of any parameters."""

    granularity: Literal["element"]
    slots: tuple[str, ...]
    """Names of the state tensors, each shaped like the parameter and zero before the first update."""

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "ElementRule":
        """The rule with the constants of the command line."""

    def update(self, param: torch.Tensor, grad: torch.Tensor, state: Mapping[str, torch.Tensor], step: Step) -> None:
        """Update ``param`` and ``state`` in place over flat float32 or float64 tensors. ``grad`` may be overwritten.

        Elements whose parameter, gradient and state are zero stay zero: padding takes part in the update.
        """


@runtime_checkable
class CopyingRule(Protocol):
    """An element rule that stores new parameters to a copy of another dtype in the same pass over memory."""

    def update_and_copy(
        self,
        param: torch.Tensor,
        grad: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        step: Step,
        copy: torch.Tensor | None,
    ) -> None:
        """:meth:`ElementRule.update`, with the result rounded to ``copy`` too."""


@dataclass(frozen=True)
class TensorPart:
    """The elements of one parameter that this rank updates; there may be none."""

    spec: ParamSpec
    start: int
    """First element, counted in the C-contiguous tensor of ``spec.box.extent``."""
    param: torch.Tensor
    """1-d, float32 or float64."""
    grad: torch.Tensor
    share: slice
    """The elements that enter sums over the whole parameter: over all ranks each one once."""
    state: dict[str, torch.Tensor]


class TensorRule(Protocol):
    """An update that needs sums over each whole parameter, however it is cut over ranks."""

    granularity: Literal["tensor"]

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "TensorRule":
        """The rule with the constants of the command line."""

    def slots(self, spec: ParamSpec) -> tuple[str, ...]:
        """Names of the state tensors that are shaped like the parameter and cut like it."""

    def factors(self, spec: ParamSpec) -> dict[str, tuple[int, ...]]:
        """Names and shapes of small state tensors of the whole parameter, which every rank holds."""

    def update(self, part: TensorPart, step: Step) -> Sums:
        """Update ``part.param`` and ``part.state`` in place. ``part.grad`` may be overwritten.

        Each ``yield`` hands out a 1-d tensor of sums over ``part.share`` and receives, in float64, their sums over all
        ranks. Its length and the number of yields depend on ``part.spec`` alone.
        """
