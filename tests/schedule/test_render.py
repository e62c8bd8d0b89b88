from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.schedule.actions import COMPUTES
from megalite.schedule.plan import plan
from megalite.schedule.render import render
from megalite.schedule.simulate import Costs, simulate
from tests.schedule.cases import requests


def _grid(schedule, costs, width=120):
    return render(schedule, simulate(schedule, costs), width).splitlines()


def test_1f1b_by_hand():
    assert _grid(plan("1f1b", 2, 1, 3), Costs(1, 2)) == [
        "rank 0 | F0 F1 .  .  B0--- F2 B1--- .  B2---",
        "rank 1 | .  F0 B0--- F1 B1--- F2 B2--- .  .",
    ]


def test_virtual_stages_have_letters_and_long_grids_are_cut():
    assert _grid(plan("interleaved", 2, 2, 2), Costs(1, 1), width=30) == [
        "rank 0 | F0a F1a F0b F1b .",
        "rank 1 | .   F0a F1a F0b B0b",
        "",
        "rank 0 | B0b .   B1b B0a B1a",
        "rank 1 | F1b B1b B0a B1a .",
    ]


def test_blocks_are_of_equal_length():
    lines = _grid(plan("gpipe", 1, 1, 3), Costs(1, 1), width=24)
    assert lines == ["rank 0 | F0 F1 F2", "", "rank 0 | B0 B1 B2"]


def test_costs_that_are_no_multiple_of_each_other():
    """A column is the shortest compute (1); 1.5 rounds to one or two columns, and nothing overlaps."""
    assert _grid(plan("1f1b", 1, 1, 2), Costs(1, 1.5)) == ["rank 0 | F0 B0--- F1 B1"]


@given(requests(max_pp=4), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_every_compute_is_drawn_once(request_, forward, backward):
    """Costs of tenths add up with rounding errors, halves of a column among them."""
    schedule = plan(*request_)
    lines = _grid(schedule, Costs(forward / 10, backward / 10), width=10**6)
    for actions, line in zip(schedule.ranks, lines):
        drawn = [cell.rstrip("-") for cell in line.split("|")[1].split() if cell != "."]
        computes = [action for action in actions if action.kind in COMPUTES]
        letters = [chr(ord("a") + action.stage // schedule.pp) if schedule.virtual > 1 else "" for action in computes]
        assert drawn == [f"{action.kind.value}{action.microbatch}{letter}" for action, letter in zip(computes, letters)]


def test_two_digit_microbatches_and_ranks_stay_aligned():
    lines = _grid(plan("1f1b", 11, 1, 11), Costs(1, 1), width=400)
    assert lines[0].startswith("rank  0 | F0  F1  F2 ") and lines[10].startswith("rank 10 | .   .   ")
    assert lines[10].split("|")[1].split()[10:12] == ["F0", "B0"]
