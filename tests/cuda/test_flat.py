"""The CUDA kernels over flat tensors and logits, run by the emulation."""

import math

import pytest
import torch
from tests.cuda.cases import COLS, DTYPES
from tests.cuda.checks import (
    BOXES,
    check_adamw,
    check_cross_entropy,
    check_normal_numbers,
    check_sum_of_squares,
    cross_entropy,
    cross_entropy_inputs,
)
from tests.cuda.conftest import ORDERS

from megalite.ops.linear_cross_entropy import LossForm, Tokens, statistics, turn_into_gradient_
from megalite.ops.norm import sum_of_squares

SIZES = [0, 1, 3, 4, 5, 1000, 4097]


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adamw(emulation, dtype, size, offset):
    check_adamw("cpu", dtype, size, offset)


@pytest.mark.parametrize("factor", [1.0, 0.3])
@pytest.mark.parametrize("size", [*SIZES, 65_536, 140_001])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sum_of_squares(emulation, dtype, size, factor):
    check_sum_of_squares("cpu", dtype, size, factor)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_non_finite_element_shows_in_the_sum_of_squares(emulation, value):
    x = torch.zeros(70_000)
    x[69_999] = value
    assert not math.isfinite(sum_of_squares(x).item())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape, box", BOXES)
def test_normal_numbers(emulation, shape, box, dtype):
    check_normal_numbers("cpu", dtype, shape, box)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cross_entropy(emulation, dtype, cols):
    check_cross_entropy("cpu", dtype, cols)


def test_cross_entropy_over_two_parts_of_the_vocabulary(emulation):
    """As two ranks compute it, and their sums are added between the kernels."""
    logits, targets, weights, form = cross_entropy_inputs(131, torch.float32)
    losses, gradient = cross_entropy(logits.double(), targets, weights, form, plain=True)
    parts = [logits[:, :70].contiguous(), logits[:, 70:].contiguous()]
    held = [targets.where(targets < 70, -1), (targets - 70).where(targets >= 70, -1)]
    peaks, sums = [], []
    for part, local, real in zip(parts, held, (70, form.num_real - 70)):
        only_here = LossForm(
            form.vocab_size, real, form.label_smoothing, reduce=lambda x, op: peaks.append(x.clone()) or x
        )
        statistics(part, local, only_here)
    top = torch.maximum(peaks[0], peaks[2])

    def both(x, op):
        if op == "max":
            return x.copy_(top)
        sums.append(x.clone())
        return x

    for part, local, real in zip(parts, held, (70, form.num_real - 70)):
        statistics(part, local, LossForm(form.vocab_size, real, form.label_smoothing, reduce=both))
    total, target, uniform = sums[0] + sums[1]
    smoothing = form.label_smoothing
    ours = total.log() - (1 - smoothing) * target - smoothing / form.vocab_size * uniform
    torch.testing.assert_close(ours.double(), losses, rtol=1e-6, atol=1e-6)
    for part, local, real in zip(parts, held, (70, form.num_real - 70)):
        here = LossForm(form.vocab_size, real, smoothing)
        turn_into_gradient_(part, top, total, Tokens(part, local, weights), here)
    torch.testing.assert_close(torch.cat(parts, 1).double(), gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_cross_entropy_in_any_order_of_threads(emulation, order):
    emulation.order(order)
    logits, *rest = cross_entropy_inputs(2000, torch.float32)
    first = cross_entropy(logits.clone(), *rest, plain=False)
    emulation.order("ascending")
    assert all(map(torch.equal, first, cross_entropy(logits.clone(), *rest, plain=False)))
