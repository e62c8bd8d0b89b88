"""ElementUpdate: runs an element rule over whole flat slices, the fewest and longest tensors there are."""

from dataclasses import replace
from typing import Iterator, Sequence

import torch

from megalite.optim.part import Part, StateEntry, part_entries
from megalite.optim.rule import CopyingRule, ElementRule, Step


class ElementUpdate:
    """The state of an element rule, one flat tensor a slot and slice."""

    def __init__(self, rule: ElementRule, parts: Sequence[Part]):
        self._rule, self._parts = rule, parts
        self._states = [{slot: torch.zeros_like(part.main) for slot in rule.slots} for part in parts]

    def run(self, step: Step) -> None:
        """One update of all parts, main parameters and the model's."""
        without_decay = replace(step, weight_decay=0.0)
        for part, state in zip(self._parts, self._states):
            args = part.main, part.slice.grad, state, step if part.slice.decay else without_decay
            if isinstance(self._rule, CopyingRule) and not part.in_place:
                self._rule.update_and_copy(*args, part.slice.param)
            else:
                self._rule.update(*args)
                part.refresh_params()

    def entries(self, owned_only: bool) -> Iterator[StateEntry]:
        """The state, under its names."""
        for part, state in zip(self._parts, self._states):
            for slot, tensor in state.items():
                yield from part_entries(part, slot, tensor, owned_only)
