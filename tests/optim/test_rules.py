"""Conformance of the update rules: each equals a plain implementation, and each meets the same demands."""

import pytest
import torch

from megalite.config import OptimizerConfig
from megalite.optim.rule import Step
from megalite.plugins import available, load

CONFIG = OptimizerConfig(lr=0.01, adam_beta1=0.8, adam_beta2=0.9, sgd_momentum=0.7, lion_beta1=0.8, lion_beta2=0.9)
RULES = available("megalite.optim.rules")
DECAY, FACTOR = 0.1, 1 / 3


def make(name):
    return load("megalite.optim.rules", name, "--optimizer").Rule.from_config(CONFIG)


def plain_adam(param):
    optimizer = torch.optim.AdamW([param], lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=DECAY, foreach=False)
    return optimizer.step


def plain_sgd(param):
    return torch.optim.SGD([param], lr=0.01, momentum=0.7, weight_decay=DECAY, foreach=False).step


def plain_lion(param):
    momentum = torch.zeros_like(param)

    def step():
        grad = param.grad
        direction = torch.sign(0.8 * momentum + (1 - 0.8) * grad)
        param.data -= 0.01 * (direction + DECAY * param.data)
        momentum.copy_(0.9 * momentum + (1 - 0.9) * grad)

    return step


PLAIN = {"adam": plain_adam, "sgd": plain_sgd, "lion": plain_lion}


def run(name, start, grads, factor):
    """Parameters after each update."""
    rule, param = make(name), start.clone()
    state = {slot: torch.zeros_like(param) for slot in rule.slots}
    seen = []
    for number, grad in enumerate(grads, start=1):
        rule.update(param, grad.clone(), state, Step(number, lr=0.01, weight_decay=DECAY, grad_factor=factor))
        seen.append(param.clone())
    return torch.stack(seen)


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(130, dtype=torch.float64, generator=generator), torch.randn(20, 130, dtype=torch.float64, generator=generator))


@pytest.mark.parametrize("name", RULES)
def test_equals_a_plain_implementation(name, problem):
    start, grads = problem
    param = torch.nn.Parameter(start.clone())
    step, expected = PLAIN[name](param), []
    for grad in grads:
        param.grad = grad * FACTOR
        step()
        expected.append(param.detach().clone())
    torch.testing.assert_close(run(name, start, grads, FACTOR), torch.stack(expected), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", RULES)
def test_float32_stays_close_to_float64(name, problem):
    start, grads = (tensor.float() for tensor in problem)
    wide = run(name, start.double(), grads.double(), FACTOR)
    torch.testing.assert_close(run(name, start, grads, FACTOR).double(), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_padding_stays_zero(name):
    zeros = torch.zeros(70)
    assert (run(name, zeros, [zeros, zeros], FACTOR) == 0).all()
