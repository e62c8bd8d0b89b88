import pytest
from hypothesis import given, strategies as st

from megalite.checkpoint.policy import Retention


@pytest.mark.parametrize("keep_last, interval, doomed", [
    (None, None, []),
    (1, None, [10, 20, 30, 40, 50]),
    (3, None, [10, 20, 30]),
    (9, None, []),
    (None, 20, [10, 30, 50]),
    (2, 20, [10, 30]),
])
def test_the_rules_by_hand(keep_last, interval, doomed):
    assert Retention(keep_last, interval).doomed([10, 20, 30, 40, 50, 60], 60) == doomed


def test_checkpoints_of_an_abandoned_future_neither_count_nor_go():
    assert Retention(1).doomed([10, 15, 20, 30], 15) == [10]
    assert Retention(2).doomed([10, 15, 20, 30], 15) == []


iteration_sets = st.sets(st.integers(0, 99), min_size=1)


@given(iteration_sets, st.integers(1, 5) | st.none(), st.integers(1, 20) | st.none(), st.data())
def test_the_newest_always_stays(iterations, keep_last, interval, data):
    newest = data.draw(st.sampled_from(sorted(iterations)))
    doomed = Retention(keep_last, interval).doomed(sorted(iterations), newest)
    assert newest not in doomed and set(doomed) <= {i for i in iterations if i < newest}
