import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.errors import ScheduleError
from megalite.schedule.actions import Action, Kind, Schedule, inputs_of, message_of, other_end

actions = st.builds(Action, st.sampled_from(list(Kind)), st.integers(0, 99), st.integers(0, 9999))


def test_text_form():
    assert [str(Action(kind, 2, 5)) for kind in Kind] == [
        "F2.5",
        "B2.5",
        "I2.5",
        "W2.5",
        "SF2.5",
        "RF2.5",
        "SB2.5",
        "RB2.5",
    ]


@given(actions)
@settings(deadline=None)
def test_text_form_reads_back(action):
    assert Action.parse(str(action)) == action


@pytest.mark.parametrize("text", ["X1.2", "F1", "F1.", "F-1.2", "SF1.2x", ""])
def test_other_text_is_refused(text):
    with pytest.raises(
        ScheduleError, match=rf"such as F2.5; given '{text}': use one of the kinds F, B, I, W, SF, RF, SB, RB"
    ):
        Action.parse(text)


@pytest.mark.parametrize("send, receive", [("SF2.5", "RF3.5"), ("SB2.5", "RB1.5")])
def test_other_end_of_a_message(send, receive):
    assert str(other_end(Action.parse(send))) == receive
    assert str(other_end(Action.parse(receive))) == send


@pytest.mark.parametrize(
    "action, inputs, message",
    [
        ("F0.7", [], "SF0.7"),
        ("F1.7", ["F0.7"], "SF1.7"),
        ("F2.7", ["F1.7"], "None"),
        ("B2.7", ["F2.7"], "SB2.7"),
        ("B1.7", ["F1.7", "B2.7"], "SB1.7"),
        ("I0.7", ["F0.7", "B1.7"], "None"),
        ("I1.7", ["F1.7", "B2.7"], "SB1.7"),
        ("W1.7", ["B1.7"], "None"),
    ],
)
def test_dataflow_of_three_stages(action, inputs, message):
    assert [str(result) for result in inputs_of(Action.parse(action), 3)] == inputs
    assert str(message_of(Action.parse(action), 3)) == message


@pytest.mark.parametrize("num_stages, lists", [(2, 1), (3, 2)])
def test_a_schedule_has_a_list_and_as_many_stages_per_rank(num_stages, lists):
    with pytest.raises(ScheduleError, match=f"given {lists} lists and {num_stages} stages for 2 ranks"):
        Schedule("mine", 2, num_stages, 1, ((),) * lists)
