"""Adds the messages to a schedule of computes."""

from dataclasses import replace

from megalite.schedule.actions import Action, Kind, Schedule, ends_on_one_rank, message_of, other_end
from megalite.schedule.simulate import Span, simulate
from megalite.topology.placement import owner


def lower(schedule: Schedule) -> Schedule:
    """The schedule with a send after every compute whose result another rank needs, and the receive on that rank.

    All computes of all ranks are put in one global order, that of their start when a forward costs 1 and a backward 2
    (as nothing costs 0, whatever a compute depends on starts before it); each message follows its producer at once;
    and every rank's list is the part of that order that concerns it. So a receive is posted as early as its producer
    starts, ahead of whatever the receiver begins after that.

    This cannot deadlock, even if every send and every receive blocks until its peer arrives: of all events not yet
    done, take the first in the global order. Whatever precedes it in the lists of the rank or the two ranks it
    concerns precedes it in the global order too and is done, so those ranks stand before it; its inputs are earlier
    events, thus done as well; hence it can happen. For the same reason sends and receives of a channel come in the
    same order on both of its ends.

    Raises :class:`ScheduleError` if computes wait for each other in a circle.
    """
    spans = [span for spans in simulate(schedule).spans for span in spans]
    ranks: list[list[Action]] = [[] for _ in schedule.ranks]
    for span in sorted(spans, key=_launch):
        compute = span.action
        rank = owner(compute.stage, schedule.pp)
        ranks[rank].append(compute)
        send = message_of(compute, schedule.num_stages)
        if send is not None and not ends_on_one_rank(send, schedule.pp):
            receive = other_end(send)
            ranks[rank].append(send)
            ranks[owner(receive.stage, schedule.pp)].append(receive)
    return replace(schedule, ranks=tuple(map(tuple, ranks)))


def _launch(span: Span) -> tuple[float, bool, int]:
    """Key of the global order. Of computes that start together, producers come before their consumers' ranks, so that
    those have posted the receive before they are busy."""
    action = span.action
    forward = action.kind is Kind.F
    return span.start, not forward, action.stage if forward else -action.stage
