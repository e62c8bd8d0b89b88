"""Optimizer: an update rule applied to the flat slices that a rank holds, with main parameters and state."""

from dataclasses import dataclass
from typing import Iterator, Sequence

import torch

from megalite.optim.rule import Rule, Step
from megalite.optim.slices import FlatSlice, Segment
from megalite.state import ParamSpec

MAIN_DTYPES = (torch.float32, torch.float64)
"""Parameters of these dtypes are updated in place; those of others have a float32 main copy."""


@dataclass(frozen=True)
class StateEntry:
    """Consecutive elements of one parameter's main value or state."""

    slot: str
    """``param``, or a slot of the update rule."""
    spec: ParamSpec
    start: int
    """Range in the C-contiguous tensor of ``spec.box.extent``; see :func:`megalite.state.flat_range_to_boxes`."""
    stop: int
    tensor: torch.Tensor
    """1-d view of the elements; reading into it loads them."""


@dataclass(frozen=True)
class _Part:
    slice: FlatSlice
    main: torch.Tensor
    state: dict[str, torch.Tensor]


class Optimizer:
    """Holds main parameters and state of ``slices``, all allocated at once, and updates them.

    So a checkpoint that is taken before the first update is complete.
    """

    def __init__(self, rule: Rule, slices: Sequence[FlatSlice]):
        self.rule = rule
        self.num_updates = 0
        """Successful updates so far; saved and restored with the state."""
        self._parts = [_new_part(rule, flat_slice) for flat_slice in slices]

    def step(self, lr: float, weight_decay: float, grad_factor: float) -> None:
        """One update with the gradients ``grad * grad_factor``. Main gradients are consumed."""
        self.num_updates += 1
        for part in self._parts:
            decay = weight_decay if part.slice.decay else 0.0
            self.rule.update(part.main, part.slice.grad, part.state, Step(self.num_updates, lr, decay, grad_factor))
        self.refresh_params()

    def main_params(self) -> list[torch.Tensor]:
        """The main parameters, flat, one tensor a slice, in the order of the slices."""
        return [part.main for part in self._parts]

    def refresh_params(self) -> None:
        """Copy main parameters to the model's; call it after loading them."""
        for part in self._parts:
            if part.main is not part.slice.param:
                part.slice.param.copy_(part.main)

    def refresh_main_params(self) -> None:
        """Copy the model's parameters to the main ones; call it when the model's were loaded without them."""
        for part in self._parts:
            if part.main is not part.slice.param:
                part.main.copy_(part.slice.param)

    def state_entries(self, owned_only: bool = False) -> Iterator[StateEntry]:
        """Every element of main parameters and state on this rank, under its name.

        With ``owned_only``, over all ranks each global element comes once: what a checkpoint writes.
        """
        for part in self._parts:
            segments = part.slice.owned_segments() if owned_only else part.slice.segments
            for slot, tensor in {"param": part.main, **part.state}.items():
                for segment in segments:
                    yield _entry(slot, tensor, segment)


def _new_part(rule: Rule, flat_slice: FlatSlice) -> _Part:
    param = flat_slice.param
    main = param if param.dtype in MAIN_DTYPES else param.float()
    return _Part(flat_slice, main, {slot: torch.zeros_like(main) for slot in rule.slots})


def _entry(slot: str, tensor: torch.Tensor, segment: Segment) -> StateEntry:
    view = tensor[segment.offset : segment.offset + segment.numel]
    return StateEntry(slot, segment.spec, segment.start, segment.stop, view)
