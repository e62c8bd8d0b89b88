"""Loss scaling: gradients of float16 activations must not vanish. The scale is undone in the update's ``grad_factor``.

The rules of the dynamic scale are Megatron-LM's. Every rank makes the same decisions, for it is told of overflows by
the global gradient norm, which is equal on all ranks.
"""

from dataclasses import dataclass
from typing import Protocol

from megalite.config import TrainingConfig
from megalite.errors import NumericsError


class LossScaler(Protocol):
    scale: float
    """What the loss is multiplied by before the backward pass."""

    def update(self, overflow: bool) -> None:
        """Take note of a step whose gradients were finite, or were not."""

    def state(self) -> dict[str, float]:
        """Plain numbers from which :meth:`load` continues."""

    def load(self, state: dict[str, float]) -> None:
        """Continue from a saved :meth:`state`."""


def make_scaler(config: TrainingConfig) -> LossScaler:
    """Dynamic for float16, unless a constant scale is given; 1 where no scale is needed."""
    if config.loss_scale is not None:
        return ConstantScale(config.loss_scale)
    if not config.fp16:
        return ConstantScale(1.0)
    return DynamicScale(
        scale=config.initial_loss_scale,
        min_scale=config.min_loss_scale,
        window=config.loss_scale_window,
        hysteresis=config.hysteresis,
    )


@dataclass
class ConstantScale:
    """A scale that never moves; it is given anew at each start, so nothing of it is saved."""

    scale: float

    def update(self, overflow: bool) -> None:
        """Steps change nothing."""

    def state(self) -> dict[str, float]:
        return {}

    def load(self, state: dict[str, float]) -> None:
        """The scale of the command line holds, whatever the former run used."""


class DynamicScale:
    """Doubles after ``window`` finite steps in a row; halves on the ``hysteresis``-th overflow and each one after it.

    The count of overflows starts anew only when the scale doubles, not on a finite step.
    """

    def __init__(self, scale: float, min_scale: float, window: int, hysteresis: int):
        self.scale = scale
        self._min_scale, self._window, self._hysteresis = min_scale, window, hysteresis
        self._finite_steps, self._tolerance = 0, hysteresis

    def update(self, overflow: bool) -> None:
        """Raises :class:`NumericsError` when the scale would have to fall below its minimum."""
        if overflow:
            self._finite_steps = 0
            self._tolerance -= 1
            if self._tolerance <= 0:
                self._shrink()
            return
        self._finite_steps += 1
        if self._finite_steps == self._window:
            self._finite_steps, self._tolerance = 0, self._hysteresis
            self.scale *= 2.0

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "finite_steps": self._finite_steps, "tolerance": self._tolerance}

    def load(self, state: dict[str, float]) -> None:
        """An empty state, of a run that had no dynamic scale, leaves the initial one."""
        self.scale = float(state.get("scale", self.scale))
        self._finite_steps = int(state.get("finite_steps", self._finite_steps))
        self._tolerance = int(state.get("tolerance", self._tolerance))

    def _shrink(self) -> None:
        if self.scale <= self._min_scale:
            raise NumericsError(
                f"gradients must be finite at the smallest loss scale (min_loss_scale {self._min_scale:g}); they "
                f"overflowed at scale {self.scale:g}: the training diverges. Lower --lr, check the data, or use --bf16."
            )
        self.scale = max(self.scale / 2.0, self._min_scale)
