from collections import Counter

import pytest
from hypothesis import given, settings

from megalite.errors import ScheduleError
from megalite.plugins import load
from megalite.schedule.actions import COMPUTES, Kind, Schedule
from megalite.schedule.lower import lower
from megalite.schedule.plan import BUILDERS, plan
from megalite.schedule.simulate import simulate
from megalite.schedule.text import parse
from tests.schedule.cases import requests
from tests.schedule.rendezvous import Rendezvous


@given(requests())
@settings(max_examples=200, deadline=None)
def test_every_plan_runs_with_blocking_messages(request_):
    Rendezvous(plan(*request_)).run()


@given(requests())
@settings(max_examples=50, deadline=None)
def test_computes_keep_their_order(request_):
    name, *sizes = request_
    built = load(BUILDERS, name, "--pipeline-schedule").build(*sizes)
    for before, after in zip(built.ranks, lower(built).ranks):
        assert before == tuple(action for action in after if action.kind in COMPUTES)


def test_one_rank_exchanges_nothing():
    assert all(action.kind in COMPUTES for action in plan("interleaved", 1, 3, 4).ranks[0])


def test_two_ranks_by_hand():
    """Rank 1 posts its receives ahead of what it computes meanwhile."""
    lowered = plan("1f1b", 2, 1, 2)
    assert [" ".join(map(str, actions)) for actions in lowered.ranks] == [
        "F0.0 SF0.0 F0.1 SF0.1 RB0.0 B0.0 RB0.1 B0.1",
        "RF1.0 RF1.1 F1.0 B1.0 SB1.0 F1.1 B1.1 SB1.1",
    ]


def _most_unused(schedule):
    """For each (kind of receive, stage), the most messages that are posted and not yet used."""
    unused, most = Counter(), Counter()
    for actions in schedule.ranks:
        for action in actions:
            if action.kind in (Kind.RECV_F, Kind.RECV_B):
                unused[action.kind, action.stage] += 1
                most[action.kind, action.stage] = max(
                    most[action.kind, action.stage], unused[action.kind, action.stage]
                )
            elif action.kind in (Kind.F, Kind.B):
                unused[Kind.RECV_F if action.kind is Kind.F else Kind.RECV_B, action.stage] -= 1
    return most


def _most_needed(schedule):
    """The same for messages that exist and are not yet used: what the order of the computes makes inevitable."""
    times = {span.action: span for spans in simulate(schedule).spans for span in spans}
    events = []
    for action, span in times.items():
        step = -1 if action.kind is Kind.F else 1
        producer = type(action)(action.kind, action.stage + step, action.microbatch)
        if producer in times:
            key = (Kind.RECV_F if action.kind is Kind.F else Kind.RECV_B, action.stage)
            events += [(times[producer].end, 1, key), (span.start, 0, key)]
    held, most = Counter(), Counter()
    for _, arrives, key in sorted(events):
        held[key] += 1 if arrives else -1
        most[key] = max(most[key], held[key] + (0 if arrives else 1))
    return most


@given(requests())
@settings(max_examples=100, deadline=None)
def test_receives_are_posted_at_most_two_ahead(request_):
    schedule = plan(*request_)
    needed = _most_needed(schedule)
    for key, most in _most_unused(schedule).items():
        assert most <= needed[key] + 2, (key, most, needed[key])


@pytest.mark.parametrize(
    "name, virtual", [("one_f_one_b", 1), ("gpipe", 1), ("gpipe", 2), ("interleaved", 2), ("forward_only", 2)]
)
def test_received_activations_do_not_grow_with_the_number_of_microbatches(name, virtual):
    most = [max(_most_unused(plan(name, 4, virtual, num_microbatches)).values()) for num_microbatches in (8, 64)]
    assert most[0] == most[1] <= 5


def test_computes_that_wait_in_a_circle_are_shown():
    circular = parse(
        "schedule mine pp=2 stages=2 microbatches=2\nrank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n"
    )
    with pytest.raises(ScheduleError) as caught:
        lower(circular)
    assert str(caught.value).splitlines() == [
        "the computes of a schedule must not wait for each other in a circle; these do.",
        "Schedule mine, pp 2, 2 stages, 2 micro-batches:",
        "rank 0, from step 0: F0.0 B0.0 F0.1 B0.1",
        "                          ^ B0.0 waits for B1.0 on rank 1",
        "rank 1, from step 0: F1.1 B1.1 F1.0 B1.0",
        "                     ^ F1.1 waits for F0.1 on rank 0",
    ]


def test_lowering_keeps_what_the_schedule_says_of_itself():
    lowered = plan("forward_only", 2, 2, 3)
    assert (lowered.name, lowered.pp, lowered.num_stages, lowered.virtual, lowered.num_microbatches) == (
        "forward_only",
        2,
        4,
        2,
        3,
    )
    assert lowered.forward_only and isinstance(lowered, Schedule)
