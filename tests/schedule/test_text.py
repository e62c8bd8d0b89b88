import pytest
from hypothesis import given, settings

from megalite.errors import ScheduleError
from megalite.schedule.plan import plan
from megalite.schedule.text import parse, render_actions
from tests.schedule.cases import requests


@given(requests())
@settings(max_examples=50, deadline=None)
def test_text_reads_back(request_):
    schedule = plan(*request_)
    assert parse(render_actions(schedule)) == schedule


def test_text_form():
    assert render_actions(plan("forward_only", 2, 1, 2)) == (
        "schedule forward_only pp=2 stages=2 microbatches=2 forward-only\n"
        "rank 0: F0.0 SF0.0 F0.1 SF0.1\n"
        "rank 1: RF1.0 RF1.1 F1.0 F1.1\n"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("pp=1", "line 1 must read 'schedule NAME pp=P stages=S microbatches=M .*; given 'pp=1'"),
        (
            "schedule a pp=1 stages=1 microbatches=1\nrank 1: F0.0",
            "line 2 must begin with 'rank 0:'; given 'rank 1: F0.0'",
        ),
        (
            "schedule a pp=1 stages=1 microbatches=1\nrank 0: F0.0 X0.0",
            "line 2: an action is written as .* given 'X0.0'",
        ),
        ("schedule a pp=2 stages=2 microbatches=1\nrank 0: F0.0", "one list per pipeline rank .* given 1 lists"),
    ],
)
def test_other_text_is_refused_with_its_line(text, message):
    with pytest.raises(ScheduleError, match=message):
        parse(text)
