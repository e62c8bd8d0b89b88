"""Conformance of the update rules: each equals a plain implementation, and each meets the same demands."""

import pytest
import torch

import megalite.optim.rules
from megalite.optim.optimizer import Optimizer
from megalite.optim.slices import FlatSlice, Segment
from megalite.parallel.group import Group
from megalite.plugins import available, load
from megalite.state import Box, Init, ParamSpec
from tests.optim.plain import CONFIG, LR, PLAIN

RULES = available("megalite.optim.rules")
DECAY, FACTOR, PADDING = 0.1, 1 / 3, 6


def one_slice(values):
    """A slice that holds one parameter between elements of padding."""
    spec = ParamSpec("layers.0.mlp.up.weight", tuple(values.shape), Box.whole(values.shape), Init("zeros"), decay=True)
    flat = torch.nn.functional.pad(values.flatten(), (PADDING, PADDING))
    segment = Segment(spec, 0, values.numel(), PADDING)
    return FlatSlice(flat, torch.zeros_like(flat), True, (spec,), (segment,), share=(0, flat.numel()))


def run(name, start, grads):
    """The padded parameter after each update."""
    flat = one_slice(start)
    rule = load("megalite.optim.rules", name, "--optimizer").Rule.from_config(CONFIG)
    optimizer, seen = Optimizer(rule, [flat], Group.single("tp-dp")), []
    for grad in grads:
        flat.grad.copy_(torch.nn.functional.pad(grad.flatten(), (PADDING, PADDING)))
        optimizer.step(LR, DECAY, FACTOR)
        seen.append(flat.param.clone())
    return torch.stack(seen)


def plain(name, start, grads):
    param = torch.nn.Parameter(start.clone())
    step, seen = PLAIN[name](param, DECAY), []
    for grad in grads:
        param.grad = grad * FACTOR
        step()
        seen.append(param.detach().flatten().clone())
    return torch.stack(seen)


def problem(shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(size, dtype=torch.float64, generator=generator).to(dtype) for size in (shape, (20, *shape))]


@pytest.mark.parametrize("shape", [(9, 14), (130,), (1, 5), (5, 1)])
@pytest.mark.parametrize("name", RULES)
def test_equals_a_plain_implementation(name, shape):
    start, grads = problem(shape)
    padded = run(name, start, grads)
    torch.testing.assert_close(padded[:, PADDING:-PADDING], plain(name, start, grads), rtol=1e-12, atol=1e-13)
    assert (padded[:, :PADDING] == 0).all() and (padded[:, -PADDING:] == 0).all(), "padding stays zero"


@pytest.mark.parametrize("name", RULES)
def test_float32_is_as_exact_as_the_plain_implementation(name):
    start, grads = problem((9, 14), torch.float32)
    truth = plain(name, start.double(), grads.double())
    error = (run(name, start, grads)[:, PADDING:-PADDING] - truth).abs().max()
    assert error <= max(2 * (plain(name, start, grads) - truth).abs().max(), 1e-6)


@pytest.mark.parametrize("name", RULES)
def test_zero_gradients_and_zero_parameters_give_finite_values(name):
    zeros = torch.zeros(3, 4)
    assert run(name, zeros, [zeros, zeros]).isfinite().all()
    assert run(name, torch.ones(3, 4), [zeros, zeros]).isfinite().all()


def test_a_matrix_of_more_dims_is_factored_by_its_last():
    start, grads = problem((2, 3, 7))
    flat = [tensor.reshape(*tensor.shape[:-3], 6, 7) for tensor in (start, grads)]
    assert torch.equal(run("adafactor", start, grads), run("adafactor", *flat))


SIGN_SGD = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Rule:
    granularity: ClassVar = "element"
    slots: ClassVar = ()

    @classmethod
    def from_config(cls, config):
        return cls()

    def update(self, param, grad, state, step):
        param.sub_(grad.sign(), alpha=step.lr)
"""


def test_a_new_rule_is_one_new_file(tmp_path, monkeypatch):
    (tmp_path / "signsgd.py").write_text(SIGN_SGD)
    monkeypatch.setattr(megalite.optim.rules, "__path__", [*megalite.optim.rules.__path__, str(tmp_path)])
    after = run("signsgd", torch.ones(1, 3), [torch.tensor([[-2.0, 0.0, 5.0]])])
    assert after[0, PADDING:-PADDING].tolist() == pytest.approx([1 + LR, 1.0, 1 - LR])
