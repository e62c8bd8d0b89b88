from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.errors import ConfigError
from megalite.plugins import load
from megalite.schedule.actions import COMPUTES
from megalite.schedule.plan import BUILDERS, plan
from megalite.schedule.simulate import Costs, simulate
from megalite.schedule.text import parse
from tests.schedule.cases import requests

# Exact in binary, so that sums are, too.
exact_costs = st.integers(1, 64).map(lambda eighths: eighths / 8)


@given(requests(), exact_costs, exact_costs)
@settings(max_examples=300, deadline=None)
def test_bubble_is_the_textbook_s(request_, forward, backward):
    """(p-1)/(vm+p-1), and for m >= p also where m is no multiple of p."""
    name, pp, virtual, m = request_
    m += pp - 1 if name != "one_f_one_b" and virtual > 1 else 0
    schedule = load(BUILDERS, name, "--pipeline-schedule").build(pp, virtual, m)
    timeline = simulate(schedule, Costs(forward, backward))
    per_microbatch = forward if schedule.forward_only else forward + backward
    assert timeline.makespan == (virtual * m + pp - 1) * per_microbatch
    assert timeline.bubble == pytest.approx((pp - 1) / (virtual * m + pp - 1), abs=1e-12)
    assert timeline.bubbles == pytest.approx([timeline.bubble] * pp, abs=1e-12)


@given(requests(max_pp=5, max_microbatches=9), st.lists(exact_costs, min_size=20, max_size=20), exact_costs)
@settings(max_examples=100, deadline=None)
def test_times_are_the_earliest(request_, stage_costs, send):
    """Against a fixed-point iteration: a start is the latest of the rank's previous end and the inputs' arrivals."""
    schedule = plan(*request_)
    costs = stage_costs[: schedule.num_stages]
    timeline = simulate(schedule, Costs(costs, [2 * cost for cost in costs], send))
    lists = [[action for action in actions if action.kind in COMPUTES] for actions in schedule.ranks]
    duration = {
        action: costs[action.stage] * (1 if action.kind == "F" else 2) for actions in lists for action in actions
    }
    end = dict.fromkeys(duration, 0.0)
    for _ in range(len(end)):
        before = dict(end)
        for actions in lists:
            free = 0.0
            for action in actions:
                free = end[action] = max([free, *_arrivals(action, schedule, lists, end, send)]) + duration[action]
        if before == end:
            break
    assert {span.action: span.end for spans in timeline.spans for span in spans} == end


def _arrivals(action, schedule, lists, end, send):
    step = -1 if action.kind == "F" else 1
    source_stage = action.stage + step
    if not 0 <= source_stage < schedule.num_stages:
        return []
    if schedule.pp == 1:
        return [end[replace(action, stage=source_stage)]]
    source = source_stage % schedule.pp
    on_channel = [
        other
        for other in lists[source]
        if other.kind == action.kind
        and 0 <= other.stage - step < schedule.num_stages
        and (other.stage - step) % schedule.pp == action.stage % schedule.pp
    ]
    arrival = 0.0
    for other in on_channel:
        arrival = max(arrival, end[other]) + send
        if other == replace(action, stage=source_stage):
            return [arrival]


def test_two_ranks_by_hand():
    timeline = simulate(plan("1f1b", 2, 1, 2), Costs(forward=1, backward=2, send=0.5))
    spans = [[(str(span.action), span.start, span.end) for span in spans] for spans in timeline.spans]
    assert spans == [
        [("F0.0", 0, 1), ("F0.1", 1, 2), ("B0.0", 5, 7), ("B0.1", 8, 10)],
        [("F1.0", 1.5, 2.5), ("B1.0", 2.5, 4.5), ("F1.1", 4.5, 5.5), ("B1.1", 5.5, 7.5)],
    ]
    assert timeline.makespan == 10
    assert timeline.bubbles == pytest.approx((0.4, 0.4))
    assert timeline.peak_live == (2, 1)


def test_split_backward_keeps_the_activation_until_w():
    text = "schedule mine pp=1 stages=1 microbatches=2\nrank 0: F0.0 I0.0 F0.1 W0.0 B0.1\n"
    timeline = simulate(parse(text), Costs(1, 4, weight_share=0.25))
    assert [(span.start, span.end) for span in timeline.spans[0]] == [(0, 1), (1, 4), (4, 5), (5, 6), (6, 10)]
    assert timeline.peak_live == (2,)


@pytest.mark.parametrize(
    "costs, message",
    [
        (Costs(forward=0), "a forward cost must be greater than 0 and finite; given 0"),
        (Costs(backward=(1.0, float("nan"))), "a backward cost must be greater than 0"),
        (Costs(backward=(1.0,)), "one for each of the 2 virtual stages; given 1 numbers"),
        (Costs(send=-1), "the cost of a send must be 0 or more and finite; given -1"),
        (Costs(weight_share=1), "weight_share must lie between 0 and 1, both excluded; given 1"),
    ],
)
def test_costs_that_make_no_sense(costs, message):
    with pytest.raises(ConfigError, match=message):
        simulate(plan("1f1b", 2, 1, 2), costs)
