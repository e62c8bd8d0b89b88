"""Times a schedule: when each compute runs, how long ranks idle, how many activations they keep."""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Sequence

from megalite.errors import ConfigError, ScheduleError
from megalite.schedule.actions import COMPUTES, Action, Kind, Schedule, inputs_of, message_of, other_end, result_of
from megalite.schedule.faults import fault
from megalite.topology.placement import owner


@dataclass(frozen=True)
class Costs:
    """Duration of computes and messages, in any one unit. A sequence gives one value per virtual stage."""

    forward: float | Sequence[float] = 1.0
    backward: float | Sequence[float] = 2.0
    send: float = 0.0
    weight_share: float = 0.5
    """Part of a split backward that W takes; I takes the rest."""

    def of(self, compute: Action) -> float:
        """Duration of a compute."""
        cost = self.forward if compute.kind is Kind.F else self.backward
        if isinstance(cost, Sequence):
            cost = cost[compute.stage]
        share = {Kind.I: 1.0 - self.weight_share, Kind.W: self.weight_share}
        return cost * share.get(compute.kind, 1.0)

    def check(self, num_stages: int) -> None:
        """Raise :class:`ConfigError` unless every stage has a positive cost."""
        for name, cost in (("forward", self.forward), ("backward", self.backward)):
            values = cost if isinstance(cost, Sequence) else [cost] * num_stages
            if len(values) != num_stages:
                raise ConfigError(
                    f"the {name} cost must be one number, or one for each of the {num_stages} virtual stages; given "
                    f"{len(values)} numbers."
                )
            if not all(0 < value < math.inf for value in values):
                raise ConfigError(f"a {name} cost must be greater than 0 and finite; given {cost}.")
        if not 0 <= self.send < math.inf:
            raise ConfigError(f"the cost of a send must be 0 or more and finite; given {self.send}.")
        if not 0 < self.weight_share < 1:
            raise ConfigError(f"weight_share must lie between 0 and 1, both excluded; given {self.weight_share}.")


@dataclass(frozen=True)
class Span:
    """A compute and the time it takes."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """What :func:`simulate` found. All tuples are indexed by pipeline rank."""

    spans: tuple[tuple[Span, ...], ...]
    makespan: float
    bubbles: tuple[float, ...]
    """Part of the makespan that each rank is idle."""
    peak_live: tuple[int, ...]
    """Most stage inputs alive at once: from the start of F to the end of B (or W); in a forward-only schedule, of F."""

    @property
    def bubble(self) -> float:
        """Idle part of all ranks' time."""
        return sum(self.bubbles) / len(self.bubbles)


def simulate(schedule: Schedule, costs: Costs = Costs()) -> Timeline:
    """Run the computes of a complete schedule, lowered or not, each as soon as its rank and its inputs are ready.

    A message leaves when its producer ends, arrives ``costs.send`` later and keeps no rank busy; messages from one
    rank to another in one direction follow each other. Raises :class:`ScheduleError` if the order is circular.
    """
    costs.check(schedule.num_stages)
    run = _Run(schedule, costs)
    run.to_end()
    makespan = max(span.end for spans in run.spans for span in spans)
    busy = [sum(span.end - span.start for span in spans) for spans in run.spans]
    return Timeline(
        spans=tuple(tuple(spans) for spans in run.spans),
        makespan=makespan,
        bubbles=tuple(1.0 - time / makespan for time in busy),
        peak_live=tuple(_peak_live(spans, schedule.forward_only) for spans in run.spans),
    )


class _Run:
    """Walks all ranks' computes in dependency order: each rank goes on until an input is missing, then waits for it."""

    def __init__(self, schedule: Schedule, costs: Costs):
        self.schedule, self.costs = schedule, costs
        self.todo = [[action for action in actions if action.kind in COMPUTES] for actions in schedule.ranks]
        self.spans: list[list[Span]] = [[] for _ in schedule.ranks]
        self.arrivals: dict[tuple[Action, int], float] = {}
        self.waiting: set[tuple[Action, int]] = set()
        self.channel_free: dict[tuple[int, int, Kind], float] = defaultdict(float)

    def to_end(self) -> None:
        ready = list(range(self.schedule.pp))
        while ready:
            rank = ready.pop()
            for compute in self.todo[rank][len(self.spans[rank]) :]:
                missing = self._missing_input(compute, rank)
                if missing is not None:
                    self.waiting.add((missing, rank))
                    break
                result, target = self._run(compute, rank)
                if (result, target) in self.waiting:
                    self.waiting.remove((result, target))
                    ready.append(target)
        if self.waiting:
            raise self._circular()

    def _missing_input(self, compute: Action, rank: int) -> Action | None:
        inputs = inputs_of(compute, self.schedule.num_stages)
        return next((result for result in inputs if (result, rank) not in self.arrivals), None)

    def _run(self, compute: Action, rank: int) -> tuple[Action, int]:
        """Time a compute whose inputs are there; returns its result and the rank that gets it."""
        spans = self.spans[rank]
        arrivals = [self.arrivals[result, rank] for result in inputs_of(compute, self.schedule.num_stages)]
        start = max([spans[-1].end if spans else 0.0, *arrivals])
        end = start + self.costs.of(compute)
        spans.append(Span(compute, start, end))
        result, send = result_of(compute), message_of(compute, self.schedule.num_stages)
        target = rank if send is None else owner(other_end(send).stage, self.schedule.pp)
        self.arrivals[result, rank] = end
        if target != rank:
            channel = (rank, target, send.kind)
            arrival = max(end, self.channel_free[channel]) + self.costs.send
            self.channel_free[channel] = self.arrivals[result, target] = arrival
        return result, target

    def _circular(self) -> ScheduleError:
        steps, notes = {}, {}
        for missing, rank in self.waiting:
            compute = self.todo[rank][len(self.spans[rank])]
            steps[rank] = self.schedule.ranks[rank].index(compute)
            notes[rank] = f"{compute} waits for {missing} on rank {owner(missing.stage, self.schedule.pp)}"
        sentence = "the computes of a schedule must not wait for each other in a circle; these do."
        return fault(self.schedule, sentence, steps, notes)


def _peak_live(spans: list[Span], forward_only: bool) -> int:
    if forward_only:
        return 1 if spans else 0
    split = {(span.action.stage, span.action.microbatch) for span in spans if span.action.kind is Kind.W}
    live = peak = 0
    for span in spans:
        kind, work = span.action.kind, (span.action.stage, span.action.microbatch)
        if kind is Kind.F:
            live += 1
            peak = max(peak, live)
        elif kind is Kind.W or (kind is Kind.B and work not in split):
            live -= 1
    return peak
