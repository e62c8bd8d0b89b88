"""TensorUpdate: runs a tensor rule on each parameter, and adds up over ranks the sums that its updates ask for."""

from dataclasses import dataclass, replace
from typing import Iterator, Sequence

import torch

from megalite.optim.part import Part, StateEntry
from megalite.optim.rule import Step, Sums, TensorPart, TensorRule
from megalite.optim.slices import Segment
from megalite.parallel.collectives import all_reduce
from megalite.parallel.group import Group
from megalite.state import Box, ParamSpec


@dataclass(frozen=True)
class _Tensor:
    part: TensorPart
    decay: bool
    owned: tuple[int, int]
    """The range of ``part.param`` that this rank answers for."""

    @property
    def owns_first(self) -> bool:
        """Whether the first element of the whole parameter is owned: such a rank writes what all hold."""
        start, stop = self.owned
        return start < stop and self.part.start + start == 0 and not any(self.part.spec.box.offset)


class TensorUpdate:
    """The state of a tensor rule, parameter by parameter.

    All ranks that share the parameters of a pipeline stage take part for each of them, in the order of names, also
    where they hold no element of it.
    """

    def __init__(self, rule: TensorRule, parts: Sequence[Part], group: Group):
        self._rule, self._parts, self._group = rule, parts, group
        tensors = (_tensor(rule, part, spec) for part in parts for spec in part.slice.specs)
        self._tensors = sorted(tensors, key=lambda tensor: tensor.part.spec.name)

    def run(self, step: Step) -> None:
        """One update of all parameters, main and the model's, with one all-reduce for each sum that the rule needs."""
        without_decay = replace(step, weight_decay=0.0)
        updates = [self._rule.update(t.part, step if t.decay else without_decay) for t in self._tensors]
        answers: Sequence[torch.Tensor | None] = [None] * len(updates)
        while updates:
            updates, partial = _advance(updates, answers)
            if updates:
                whole = all_reduce(torch.cat(partial).double(), self._group)
                answers = whole.split([sums.numel() for sums in partial])
        for part in self._parts:
            part.refresh_params()

    def entries(self, owned_only: bool) -> Iterator[StateEntry]:
        """The state, under its names."""
        for tensor in self._tensors:
            part = tensor.part
            start, stop = tensor.owned if owned_only else (0, part.param.numel())
            if start < stop:
                for slot in self._rule.slots(part.spec):
                    values = part.state[slot][start:stop]
                    yield StateEntry(slot, part.spec, part.start + start, part.start + stop, values)
            if not owned_only or tensor.owns_first:
                yield from self._factor_entries(part)

    def _factor_entries(self, part: TensorPart) -> Iterator[StateEntry]:
        for slot, shape in self._rule.factors(part.spec).items():
            spec = replace(part.spec, global_shape=shape, box=Box.whole(shape))
            factor = part.state[slot].view(-1)
            yield StateEntry(slot, spec, 0, factor.numel(), factor)


def _advance(updates: list[Sums], answers: Sequence[torch.Tensor | None]) -> tuple[list[Sums], list[torch.Tensor]]:
    """Run each update to its next sum; those that have ended drop out."""
    running, partial = [], []
    for update, answer in zip(updates, answers):
        try:
            partial.append(update.send(answer))
            running.append(update)
        except StopIteration:
            pass
    return running, partial


def _tensor(rule: TensorRule, part: Part, spec: ParamSpec) -> _Tensor:
    found = [segment for segment in part.slice.segments if segment.spec is spec]
    segment = found[0] if found else Segment(spec, 0, 0, 0)
    at = slice(segment.offset, segment.offset + segment.numel)
    param = part.main[at]
    state = {slot: torch.zeros_like(param) for slot in rule.slots(spec)}
    state |= {slot: param.new_zeros(shape) for slot, shape in rule.factors(spec).items()}
    share, owned = (_within(segment, bounds) for bounds in (part.slice.share, part.slice.owned))
    tensor_part = TensorPart(spec, segment.start, param, part.slice.grad[at], slice(*share), state)
    return _Tensor(tensor_part, part.slice.decay, owned)


def _within(segment: Segment, bounds: tuple[int, int]) -> tuple[int, int]:
    """The part of the segment within bounds of its slice, in positions of the segment."""
    cut = segment.within(*bounds)
    return (cut.start - segment.start, cut.stop - segment.start) if cut else (0, 0)
