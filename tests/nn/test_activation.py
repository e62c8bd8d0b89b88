import math
from typing import get_args, get_type_hints

import pytest
import torch

from megalite.config import ModelConfig
from megalite.nn.activation import make_activation
from megalite.nn.context import Fusions
from tests.nn.world import assert_gradient, assert_same, random

X = random(3, 2, 8) * 2


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


FORMULAS = {
    "gelu": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swiglu": lambda x: x[..., :4] * sigmoid(x[..., :4]) * x[..., 4:],
    "squared_relu": lambda x: torch.where(x > 0, x * x, 0),
    "relu": lambda x: torch.where(x > 0, x, 0),
}


def test_every_activation_has_its_formula_here():
    assert set(FORMULAS) == set(get_args(get_type_hints(ModelConfig.activation.fget)["return"]))


@pytest.mark.parametrize("name", FORMULAS)
def test_value_and_gradient(name):
    assert_same(make_activation(name, Fusions())(X), FORMULAS[name](X))
    weights = random(*FORMULAS[name](X).shape, seed=1)
    assert_gradient(lambda x: (make_activation(name, Fusions())(x) * weights).sum(), X)
