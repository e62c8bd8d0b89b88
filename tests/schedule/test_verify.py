"""Broken schedules are refused with the place shown, and the verdict is that of an independent executor."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.errors import ScheduleError
from megalite.schedule.actions import Action, Kind
from megalite.schedule.plan import plan
from megalite.schedule.text import parse, render_actions
from megalite.schedule.verify import check_computes, verify
from tests.schedule.cases import requests
from tests.schedule.rendezvous import Rendezvous, Stuck

GOOD = """schedule 1f1b pp=2 stages=2 microbatches=3
rank 0: F0.0 SF0.0 F0.1 SF0.1 RB0.0 B0.0 F0.2 SF0.2 RB0.1 B0.1 RB0.2 B0.2
rank 1: RF1.0 F1.0 B1.0 RF1.1 SB1.0 F1.1 B1.1 RF1.2 SB1.1 F1.2 B1.2 SB1.2
"""


def _refusal(schedule):
    with pytest.raises(ScheduleError) as caught:
        verify(schedule)
    return str(caught.value).splitlines()


def _broken(before, after):
    """GOOD with one piece of a rank's list replaced."""
    assert GOOD.count(f" {before} ") == 1
    return parse(GOOD.replace(f" {before} ", f" {after} "))


def test_a_good_schedule_by_hand():
    verify(parse(GOOD))
    Rendezvous(parse(GOOD)).run()


def test_swapped_receives():
    lines = _refusal(_broken("RF1.0 F1.0 B1.0 RF1.1", "RF1.1 RF1.0 F1.0 B1.0"))
    assert lines == [
        "receives must come in the order of the sends; rank 0 sends SF0.0 when rank 1 expects SF0.1.",
        "Schedule 1f1b, pp 2, 2 stages, 3 micro-batches:",
        "rank 0, from step 0: F0.0  SF0.0 F0.1  SF0.1 RB0.0 B0.0  F0.2",
        "                           ^",
        "rank 1, from step 0: RF1.1 RF1.0 F1.0  B1.0  SB1.0 F1.1",
        "                     ^",
    ]


def test_deadlock_says_what_each_rank_waits_for():
    lines = _refusal(_broken("SF0.0 F0.1 SF0.1 RB0.0 B0.0", "RB0.0 SF0.0 F0.1 SF0.1 B0.0"))
    assert lines == [
        "ranks must not wait for each other in a circle; these would wait for ever.",
        "Schedule 1f1b, pp 2, 2 stages, 3 micro-batches:",
        "rank 0, from step 0: F0.0  RB0.0 SF0.0 F0.1  SF0.1 B0.0  F0.2",
        "                           ^ waits for SB1.0 of rank 1",
        "rank 1, from step 0: RF1.0 F1.0  B1.0  RF1.1 SB1.0 F1.1",
        "                     ^ waits for SF0.0 of rank 0",
    ]


def test_receive_before_use_alone_deadlocks():
    """The naive lowering: receive just before the use, send just after the compute. Each rank's list is right."""
    lines = _refusal(
        parse(
            "schedule naive pp=2 stages=4 microbatches=2\n"
            "rank 0: F0.0 SF0.0 F0.1 SF0.1 RF2.0 F2.0 SF2.0 RF2.1 F2.1 SF2.1 "
            "RB2.0 B2.0 SB2.0 RB2.1 B2.1 SB2.1 RB0.0 B0.0 RB0.1 B0.1\n"
            "rank 1: RF1.0 F1.0 SF1.0 RF1.1 F1.1 SF1.1 RF3.0 F3.0 B3.0 SB3.0 RF3.1 F3.1 B3.1 SB3.1 "
            "RB1.0 B1.0 SB1.0 RB1.1 B1.1 SB1.1\n"
        )
    )
    assert lines == [
        "ranks must not wait for each other in a circle; these would wait for ever.",
        "Schedule naive, pp 2, 4 stages, 2 micro-batches:",
        "rank 0, from step 0: F0.0  SF0.0 F0.1  SF0.1 RF2.0 F2.0  SF2.0 RF2.1 F2.1",
        "                                       ^ waits for RF1.1 of rank 1",
        "rank 1, from step 0: RF1.0 F1.0  SF1.0 RF1.1 F1.1  SF1.1 RF3.0 F3.0",
        "                                 ^ waits for RF2.0 of rank 0",
    ]


@pytest.mark.parametrize(
    "before, after, sentence, step",
    [
        ("B0.1", "", "rank 0 must do B0.1; it is missing.", 11),
        ("F0.1", "F0.1 F0.1", "an action must happen once; rank 0 does F0.1 twice.", 3),
        ("SF0.1", "SF1.1", "rank 0 must do what its stages need and no more; no rank needs SF1.1.", 3),
        ("F0.2", "F1.2 F0.2", "rank 0 must do what its stages need and no more; F1.2 belongs on rank 1.", 6),
        ("RF1.2", "", "rank 1 must do RF1.2; it is missing.", 11),
        ("SF0.2", "SF0.2 SF0.2", "an action must happen once; rank 0 does SF0.2 twice.", 8),
        ("F0.0 SF0.0", "SF0.0 F0.0", "what an action uses must come before it; rank 0 does SF0.0 before F0.0.", 0),
        ("RB0.0 B0.0", "B0.0 RB0.0", "what an action uses must come before it; rank 0 does B0.0 before RB0.0.", 4),
        ("F1.2 B1.2", "B1.2 F1.2", "what an action uses must come before it; rank 1 does B1.2 before F1.2.", 9),
        ("B1.1", "I1.1", "rank 1 must do W1.1; it is missing.", 12),
    ],
)
def test_each_fault_is_shown_where_it_is(before, after, sentence, step):
    schedule = _broken(before, after)
    lines = _refusal(schedule)
    assert lines[0] == sentence
    rank = int(sentence.split("rank ")[1][0])
    at = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[at - 1].startswith(f"rank {rank}, from step {max(0, step - 6)}:")
    under_arrow = lines[at - 1][lines[at].index("^") :].split()
    assert under_arrow[:1] == [str(action) for action in schedule.ranks[rank][step : step + 1]]


def test_stages_of_one_rank_must_not_send_to_each_other():
    lines = _refusal(parse("schedule mine pp=1 stages=2 microbatches=1\nrank 0: F0.0 SF0.0 RF1.0 F1.0 B1.0 B0.0\n"))
    assert lines[0].endswith("no rank needs SF0.0.")


def test_a_backward_has_no_place_in_evaluation():
    lines = _refusal(replace(parse(GOOD), forward_only=True))
    assert lines[0].endswith("no rank needs B0.0.")


def test_a_stage_beyond_the_last_is_refused():
    lines = _refusal(parse("schedule mine pp=1 stages=1 microbatches=1\nrank 0: F0.0 F1.0 B0.0\n"))
    assert lines[0].endswith("no rank needs F1.0.")


def test_backward_may_be_split():
    split = parse(GOOD.replace("B1.1 RF1.2 SB1.1 F1.2", "I1.1 RF1.2 SB1.1 F1.2 W1.1"))
    verify(split)
    Rendezvous(split).run()
    with pytest.raises(ScheduleError, match="rank 1 does W1.1 before B1.1"):
        verify(parse(render_actions(split).replace("I1.1 RF1.2 SB1.1 F1.2 W1.1", "W1.1 I1.1 RF1.2 SB1.1 F1.2")))


def test_computes_alone_can_be_checked():
    check_computes(parse("schedule mine pp=1 stages=1 microbatches=1\nrank 0: F0.0 B0.0\n"))
    with pytest.raises(ScheduleError, match="rank 0 must do B0.0; it is missing"):
        check_computes(parse("schedule mine pp=1 stages=1 microbatches=1\nrank 0: F0.0\n"))


@st.composite
def mutants(draw):
    """A plan with one rank's list disturbed: actions exchanged, moved, left out, repeated or changed."""
    schedule = plan(*draw(requests(max_pp=4, max_virtual=3, max_microbatches=5)))
    rank = draw(st.integers(0, schedule.pp - 1))
    actions = list(schedule.ranks[rank])
    steps = st.integers(0, len(actions) - 1)
    for _ in range(draw(st.integers(1, 2))):
        one, other = draw(steps), draw(steps)
        match draw(st.sampled_from(["exchange", "move", "neighbours", "drop", "repeat", "change"])):
            case "exchange":
                actions[one], actions[other] = actions[other], actions[one]
            case "move":
                actions.insert(other, actions.pop(one))
            case "neighbours":
                actions[one - 1], actions[one] = actions[one], actions[one - 1]
            case "drop":
                actions[one : one + 1] = []
                actions = actions or [Action(Kind.F, 0, 0)]
            case "repeat":
                actions.insert(other, actions[one])
            case "change":
                actions[one] = Action(actions[one].kind, actions[other].stage, actions[one].microbatch)
        steps = st.integers(0, len(actions) - 1)
    ranks = list(schedule.ranks)
    ranks[rank] = tuple(actions)
    return replace(schedule, ranks=tuple(ranks))


@given(mutants())
@settings(max_examples=400, deadline=None)
def test_the_verdict_is_that_of_a_slow_executor(schedule):
    try:
        Rendezvous(schedule).run()
    except Stuck as stuck:
        with pytest.raises(ScheduleError):
            verify(schedule)
            raise AssertionError(f"accepted, but {stuck}:\n{render_actions(schedule)}")
    else:
        verify(schedule)
