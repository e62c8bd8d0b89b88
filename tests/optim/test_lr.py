import math

import pytest

from megalite.config import OptimizerConfig, TrainingConfig
from megalite.errors import ConfigError
from megalite.optim.lr import LearningRate

TRAINING = TrainingConfig(train_iters=100, global_batch_size=10)


def curve(training=TRAINING, **fields):
    return LearningRate.from_config(OptimizerConfig(**{"lr": 1.0, "min_lr": 0.1, **fields}), training)


def check(lr, expected):
    for samples, value in expected.items():
        assert lr.at(samples) == pytest.approx(value, abs=1e-15), f"at {samples} samples"


def test_warm_up_is_linear_from_init_to_max_and_reaches_it_exactly():
    lr = curve(lr_decay_style="constant", lr_warmup_iters=10, lr_warmup_init=0.2)
    check(lr, {0: 0.2, 10: 0.28, 50: 0.6, 100: 1.0, 101: 1.0, 5000: 1.0})


def test_without_warm_up_the_first_step_has_the_full_rate():
    check(curve(lr_decay_style="linear"), {0: 1.0})


def test_linear():
    # decay from 100 (end of warm-up) to 1000 samples
    check(
        curve(lr_decay_style="linear", lr_warmup_iters=10),
        {0: 0.0, 100: 1.0, 550: 0.55, 999: 0.1 + 0.9 / 900, 1000: 0.1, 1001: 0.1},
    )


def test_cosine():
    lr = curve(lr_decay_style="cosine", lr_warmup_iters=10)
    check(lr, {100: 1.0, 325: 0.1 + 0.9 * 0.5 * (1 + math.sqrt(0.5)), 550: 0.55, 1000: 0.1, 2000: 0.1})


def test_inverse_square_root():
    lr = curve(lr_decay_style="inverse-square-root", lr_warmup_iters=10, lr_decay_iters=100_000)
    check(lr, {100: 1.0, 400: 0.5, 1600: 0.25, 10_000: 0.1, 40_000: 0.1, 1_000_001: 0.1})
    without_warm_up = curve(lr_decay_style="inverse-square-root", min_lr=0.0)
    check(without_warm_up, {0: 1.0, 1: 1.0, 4: 0.5, 1000: math.sqrt(1e-3), 1001: 0.0})


@pytest.mark.parametrize(
    "style, half, three_quarters",
    [
        ("linear", 0.5, 0.25),
        ("cosine", 0.5, 0.5 * (1 - math.sqrt(0.5))),
        ("exponential", 2 * math.sqrt(0.5) - 1, 2 * 0.5**0.75 - 1),
        ("minus_sqrt", 1 - math.sqrt(0.5), 1 - math.sqrt(0.75)),
    ],
)
def test_wsd_is_stable_then_decays_over_the_last_phase(style, half, three_quarters):
    lr = curve(lr_decay_style="WSD", lr_wsd_decay_style=style, lr_wsd_decay_iters=20, lr_warmup_iters=10)
    check(lr, {50: 0.5, 100: 1.0, 500: 1.0, 800: 1.0, 1000: 0.1, 1001: 0.1})
    check(lr, {900: 0.1 + 0.9 * half, 950: 0.1 + 0.9 * three_quarters})


def test_lengths_come_from_samples_iterations_or_a_fraction():
    by_samples = TrainingConfig(train_samples=1000, global_batch_size=10)
    expected = curve(lr_warmup_iters=10)
    assert curve(lr_warmup_fraction=0.1) == expected
    assert curve(by_samples, lr_warmup_samples=100) == expected
    assert curve(by_samples, lr_warmup_fraction=0.05, lr_decay_samples=2000).warmup_samples == 100
    assert curve(lr_decay_iters=50).decay_samples == 500
    wsd = curve(by_samples, lr_decay_style="WSD", lr_wsd_decay_samples=300)
    assert wsd.wsd_decay_samples == 300


def test_warm_up_must_be_shorter_than_the_decay():
    with pytest.raises(ConfigError, match=r"warm-up \(1000 samples\) must end before the decay does \(1000 samples\)"):
        curve(lr_warmup_iters=100)
