import time

import pytest

from megalite import plugins
from megalite.errors import ConfigError, ScheduleError
from megalite.schedule import builders
from megalite.schedule.plan import BUILDERS, plan
from megalite.schedule.simulate import simulate
from tests.schedule.rendezvous import Rendezvous

SPLIT_BACKWARD = '''
"""1F1B whose weight gradients wait until the rank is done with its last forward."""

from megalite.schedule.actions import Action, Kind, Schedule


def build(pp, virtual, num_microbatches, *, extra_warmup=0):
    ranks = []
    for rank in range(pp):
        warmup = min(num_microbatches, pp - 1 - rank + extra_warmup)
        actions = [Action(Kind.F, rank, m) for m in range(warmup)]
        for m in range(num_microbatches):
            if warmup + m < num_microbatches:
                actions.append(Action(Kind.F, rank, warmup + m))
            actions.append(Action(Kind.I, rank, m))
        actions += [Action(Kind.W, rank, m) for m in range(num_microbatches)]
        ranks.append(tuple(actions))
    return Schedule("split", pp, pp, num_microbatches, tuple(ranks))
'''


@pytest.fixture
def outside(tmp_path, monkeypatch):
    monkeypatch.setattr(builders, "__path__", [*builders.__path__, str(tmp_path)])
    return tmp_path


def test_a_builder_from_outside_is_one_file(outside):
    (outside / "split_backward.py").write_text(SPLIT_BACKWARD)
    assert "split_backward" in plugins.available(BUILDERS)
    schedule = plan("split-backward", 4, 1, 6, extra_warmup=1)
    Rendezvous(schedule).run()
    assert [str(action) for action in schedule.ranks[3] if action.kind in ("F", "I", "W")][:4] == [
        "F3.0",
        "F3.1",
        "I3.0",
        "F3.2",
    ]
    assert simulate(schedule).peak_live == (6, 6, 6, 6)


def test_a_wrong_builder_is_caught_before_it_runs(outside):
    (outside / "forgetful.py").write_text(
        SPLIT_BACKWARD.replace("range(num_microbatches)]\n        ranks", "range(1)]\n        ranks")
    )
    with pytest.raises(ScheduleError, match=r"rank 0 must do W0.1; it is missing.\nSchedule split, pp 2"):
        plan("forgetful", 2, 1, 2)


def test_1f1b_is_known_by_its_usual_name():
    assert plan("1f1b", 2, 1, 2) == plan("one_f_one_b", 2, 1, 2) == plan("one-f-one-b", 2, 1, 2)


def test_auto_follows_the_virtual_stages():
    assert plan("auto", 2, 1, 3) == plan("1f1b", 2, 1, 3)
    assert plan("auto", 2, 2, 3, microbatch_group_size=3) == plan("interleaved", 2, 2, 3, microbatch_group_size=3)


def test_unknown_names_list_the_files_there_are():
    with pytest.raises(
        ConfigError, match="--pipeline-schedule .* given 'zigzag'; .*forward_only, gpipe, interleaved, one_f_one_b"
    ):
        plan("zigzag", 2, 1, 2)


@pytest.mark.parametrize(
    "sizes, message",
    [
        ((0, 1, 1), "at least 1 pipeline rank; given 0"),
        ((1, 0, 1), "at least 1 virtual stage per rank; given 0"),
        ((1, 1, 0), "at least 1 micro-batch; given 0"),
    ],
)
def test_nothing_is_not_a_pipeline(sizes, message):
    with pytest.raises(ScheduleError, match=message):
        plan("gpipe", *sizes)


def test_an_option_that_the_builder_lacks_is_refused_unless_it_is_unset():
    with pytest.raises(
        ScheduleError, match="schedule gpipe takes no options; given microbatch_group_size=4: leave it out"
    ):
        plan("gpipe", 4, 1, 8, microbatch_group_size=4)
    with pytest.raises(ScheduleError, match="schedule interleaved takes microbatch_group_size; given depth=4"):
        plan("interleaved", 4, 2, 8, depth=4)
    assert plan("gpipe", 4, 1, 8, microbatch_group_size=None) == plan("gpipe", 4, 1, 8)


def test_a_large_plan_takes_seconds():
    started = time.perf_counter()
    schedule = plan("interleaved", 16, 4, 128)
    assert time.perf_counter() - started < 10  # 0.6 s on an idle core
    assert sum(map(len, schedule.ranks)) == 64 * 128 * 2 + 63 * 128 * 4
