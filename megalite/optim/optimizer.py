"""Optimizer: an update rule applied to the flat slices that a rank holds, with main parameters and state."""

from typing import Iterator, Sequence

import torch

from megalite.optim.elementwise import ElementUpdate
from megalite.optim.part import Part, StateEntry, part_entries
from megalite.optim.rule import ElementRule, Step, TensorRule
from megalite.optim.slices import FlatSlice
from megalite.optim.tensorwise import TensorUpdate
from megalite.parallel.group import Group


class Optimizer:
    """Holds main parameters and state of ``slices``, all allocated at once, and updates them.

    So a checkpoint that is taken before the first update is complete.
    """

    def __init__(self, rule: ElementRule | TensorRule, slices: Sequence[FlatSlice], group: Group):
        """``group``: the ranks that share the parameters of this pipeline stage, over tensor and data parallelism."""
        self.num_updates = 0
        """Successful updates so far; saved and restored with the state."""
        self._parts = [Part.of(flat_slice) for flat_slice in slices]
        if rule.granularity == "element":
            self._update: ElementUpdate | TensorUpdate = ElementUpdate(rule, self._parts)
        else:
            self._update = TensorUpdate(rule, self._parts, group)

    def step(self, lr: float, weight_decay: float, grad_factor: float) -> None:
        """One update with the gradients ``grad * grad_factor``. Main gradients are consumed."""
        self.num_updates += 1
        self._update.run(Step(self.num_updates, lr, weight_decay, grad_factor))

    def main_params(self) -> list[torch.Tensor]:
        """The main parameters, flat, one tensor a slice, in the order of the slices."""
        return [part.main for part in self._parts]

    def refresh_params(self) -> None:
        """Copy main parameters to the model's; call it after loading them."""
        for part in self._parts:
            part.refresh_params()

    def refresh_main_params(self) -> None:
        """Copy the model's parameters to the main ones; call it when the model's were loaded without them."""
        for part in self._parts:
            if not part.in_place:
                part.main.copy_(part.slice.param)

    def state_entries(self, owned_only: bool = False) -> Iterator[StateEntry]:
        """Every element of the state on this rank, under its name; main parameters too, where they are not the model's.

        With ``owned_only``, over all ranks each global element comes once: what a checkpoint writes.
        """
        for part in self._parts:
            if not part.in_place:
                yield from part_entries(part, "param", part.main, owned_only)
        yield from self._update.entries(owned_only)
