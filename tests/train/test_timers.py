import pytest

from megalite.train.timers import Timers, spread


def test_times_of_a_name_add_up_until_they_are_taken():
    ticks = iter([1.0, 1.5, 10.0, 12.0, 20.0, 20.25, 30.0, 31.0])
    timers = Timers(clock=lambda: next(ticks))
    with timers("forward"):
        pass
    with timers("optimizer"):
        pass
    with timers("forward"):
        pass
    assert timers.take() == {"forward": 0.75, "optimizer": 2.0}
    with timers("forward"):
        pass
    assert timers.take() == {"forward": 1.0}
    assert timers.take() == {}


def test_blocks_may_nest():
    ticks = iter([0.0, 1.0, 3.0, 7.0])
    timers = Timers(clock=lambda: next(ticks))
    with timers("step"), timers("forward"):
        pass
    assert timers.take() == {"step": 7.0, "forward": 2.0}


def test_a_block_that_raises_is_timed_too():
    ticks = iter([0.0, 5.0])
    timers = Timers(clock=lambda: next(ticks))
    with pytest.raises(KeyError), timers("forward"):
        raise KeyError
    assert timers.take() == {"forward": 5.0}


def test_the_device_is_waited_for_at_both_ends():
    events = []
    timers = Timers(synchronize=lambda: events.append("wait"), clock=lambda: events.append("read") or 0.0)
    with timers("forward"):
        events.append("work")
    assert events == ["wait", "read", "work", "wait", "read"]


def test_spread_over_ranks_of_which_not_all_have_each_timer():
    per_rank = [{"optimizer": 4.0, "embedding": 2.0}, {"optimizer": 6.0}, {"optimizer": 5.0, "embedding": 1.0}]
    assert spread(per_rank, num_iterations=2) == {"embedding": (0.5, 1.0), "optimizer": (2.0, 3.0)}
