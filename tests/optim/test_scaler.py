import pytest

from megalite.config import TrainingConfig
from megalite.errors import NumericsError
from megalite.optim.scaler import make_scaler


def dynamic(**fields):
    defaults = {"fp16": True, "initial_loss_scale": 1024.0, "loss_scale_window": 3, "hysteresis": 2}
    return make_scaler(TrainingConfig(**{**defaults, **fields}))


def scales(scaler, steps):
    """Scale after each step of a string: ``x`` is an overflow, ``.`` a finite step."""
    seen = []
    for step in steps:
        scaler.update(step == "x")
        seen.append(scaler.scale)
    return seen


def test_grows_after_a_window_of_finite_steps():
    assert scales(dynamic(), ".......") == [1024, 1024, 2048, 2048, 2048, 4096, 4096]


def test_an_overflow_restarts_the_window():
    assert scales(dynamic(), "..x...") == [1024, 1024, 1024, 1024, 1024, 2048]


def test_hysteresis_is_spent_by_every_overflow_and_restored_by_growth_only():
    # first overflow tolerated; a finite step restores nothing; growth does
    assert scales(dynamic(), "x.x") == [1024, 1024, 512]
    assert scales(dynamic(), "xxx") == [1024, 512, 256]
    assert scales(dynamic(), "xx...x") == [1024, 512, 512, 512, 1024, 1024]


def test_without_hysteresis_each_overflow_halves():
    assert scales(dynamic(hysteresis=1), "xx") == [512, 256]


def test_scale_stops_at_its_minimum_and_the_next_overflow_is_an_error():
    scaler = dynamic(min_loss_scale=300.0)
    assert scales(scaler, "xxx") == [1024, 512, 300]
    with pytest.raises(NumericsError, match=r"smallest loss scale \(min_loss_scale 300\).* --bf16"):
        scaler.update(True)


def test_the_first_overflow_at_the_minimum_is_tolerated_by_hysteresis():
    scaler = dynamic(initial_loss_scale=1.0)
    scaler.update(True)
    with pytest.raises(NumericsError):
        scaler.update(True)


def test_state_continues_exactly():
    steps = "..x.xx......x...x"
    straight = scales(dynamic(), steps)
    for cut in range(len(steps)):
        first, second = dynamic(), dynamic()
        head = scales(first, steps[:cut])
        second.load(first.state())
        assert head + scales(second, steps[cut:]) == straight


def test_other_precisions_have_a_constant_scale():
    assert make_scaler(TrainingConfig(bf16=True)).scale == 1.0
    static = make_scaler(TrainingConfig(fp16=True, loss_scale=128.0))
    static.load({"scale": 4.0})
    assert scales(static, "x.x") == [128.0] * 3 and static.state() == {}
    fresh = dynamic()
    fresh.load(static.state())
    assert fresh.scale == 1024.0
