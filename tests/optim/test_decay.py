import math

import pytest

from megalite.config import OptimizerConfig, TrainingConfig
from megalite.optim.decay import WeightDecay

TRAINING = TrainingConfig(train_iters=100, global_batch_size=10)


def curve(**fields):
    return WeightDecay.from_config(OptimizerConfig(**fields), TRAINING)


def test_constant():
    decay = curve(weight_decay=0.3)
    assert [decay.at(samples) for samples in (0, 500, 10**9)] == [0.3, 0.3, 0.3]


@pytest.mark.parametrize("style, quarter", [("linear", 0.25), ("cosine", 0.5 * (1 - math.sqrt(0.5)))])
def test_rises_over_the_whole_training(style, quarter):
    decay = curve(weight_decay_incr_style=style, start_weight_decay=0.1, end_weight_decay=0.5)
    expected = {0: 0.1, 250: 0.1 + 0.4 * quarter, 500: 0.3, 1000: 0.5, 1500: 0.5}
    assert {samples: decay.at(samples) for samples in expected} == pytest.approx(expected, abs=1e-15)


def test_length_in_samples():
    config = OptimizerConfig(weight_decay_incr_style="linear", start_weight_decay=0.0, end_weight_decay=1.0)
    decay = WeightDecay.from_config(config, TrainingConfig(train_samples=400))
    assert decay.at(100) == 0.25
