"""The CUDA kernels over flat tensors and logits, run by the emulation."""

import math

import pytest
import torch
from tests.cuda.cases import COLS, DTYPES
from tests.cuda.conftest import ORDERS
from tests.ops.truth import randn

from megalite.ops import philox
from megalite.ops.adamw import AdamW, adamw_, reference_adamw_
from megalite.ops.linear_cross_entropy import LossForm, Tokens, statistics, turn_into_gradient_
from megalite.ops.norm import sum_of_squares
from megalite.state import Box

SIZES = [0, 1, 3, 4, 5, 1000, 4097]
NUMBERS = AdamW(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, step=3, grad_factor=0.3)


def adamw_inputs(size, dtype=torch.float32, offset=0):
    """Parameter, gradient and moments, float32 numbers that begin at ``offset`` elements from an aligned address."""
    tensors = [randn(size, dtype=torch.float32, seed=seed) for seed in range(4)]
    tensors[3].square_()
    return [torch.cat((x.new_zeros(offset), x)).to(dtype)[offset:] for x in tensors]


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adamw(emulation, dtype, size, offset):
    param, grad, *moments = adamw_inputs(size, offset=offset)
    copy = torch.full((size + offset,), math.nan, dtype=dtype)[offset:]
    adamw_(param, grad, tuple(moments), NUMBERS, copy)
    truth, plain = adamw_inputs(size, torch.float64), adamw_inputs(size)
    for tensors in (truth, plain):
        reference_adamw_(tensors[0], tensors[1], tuple(tensors[2:]), NUMBERS)
    for ours, other, exact in zip((param, *moments), (plain[0], *plain[2:]), (truth[0], *truth[2:])):
        error, allowed = (ours - exact).abs(), 2 * (other - exact).abs()
        assert size == 0 or error.max() <= allowed.max() + 1e-7 * exact.abs().max()
    assert torch.equal(copy, param.to(dtype))


@pytest.mark.parametrize("factor", [1.0, 0.3])
@pytest.mark.parametrize("size", [*SIZES, 65_536, 140_001])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sum_of_squares(emulation, dtype, size, factor):
    x = randn(size, dtype=dtype)
    scaled = x.clone() if factor == 1 else x * factor
    assert sum_of_squares(x, factor).item() == pytest.approx(scaled.double().square().sum().item(), rel=1e-12)
    assert torch.equal(x, scaled)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_non_finite_element_shows_in_the_sum_of_squares(emulation, value):
    x = torch.zeros(70_000)
    x[69_999] = value
    assert not math.isfinite(sum_of_squares(x).item())


BOXES = [((7,), Box((0,), (7,))), ((9, 10), Box((2, 3), (5, 6))), ((3, 4, 8), Box((1, 0, 0), (2, 4, 8)))]
BOXES += [((1 << 33, 6), Box(((1 << 33) - 50, 1), (50, 5)))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape, box", BOXES)
def test_normal_numbers_are_the_bits_of_the_reference(emulation, shape, box, dtype):
    """Which is what computes float64 numbers."""
    actual = philox.normal_box(3, "w", shape, box, 0.5, dtype)
    expected = philox.normal_box(3, "w", shape, box, 0.5, torch.float64)
    assert torch.equal(actual, expected.float().to(dtype))


def cross_entropy(logits, targets, weights, form, plain):
    """Loss of each token, and the gradient by the logits of the weighted sum."""
    if plain:
        scores = logits.detach().requires_grad_()
        real = scores[:, : form.num_real]
        uniform = -real.log_softmax(-1).mean(-1)
        losses = -real.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        losses = (1 - form.label_smoothing) * losses + form.label_smoothing * uniform
        return losses.detach(), torch.autograd.grad((losses * weights.to(losses.dtype)).sum(), scores)[0]
    tokens = Tokens(logits, targets, weights)
    peak, total, losses = statistics(logits, targets, form)
    turn_into_gradient_(logits, peak, total, tokens, form)
    return losses, logits


def cross_entropy_inputs(cols, dtype):
    rows, vocabulary = 5, max(1, cols - 3)
    logits = 3 * randn(rows, cols, dtype=dtype)
    logits[:, vocabulary:] = math.nan  # padding counts for nothing
    targets = torch.tensor([0, vocabulary - 1, vocabulary // 2, 0, vocabulary // 3])
    weights = torch.tensor([1.0, 0.0, 0.5, 1.0, 2.0])
    return logits, targets, weights, LossForm(vocabulary, vocabulary, label_smoothing=0.1)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cross_entropy(emulation, dtype, cols):
    logits, *rest = cross_entropy_inputs(cols, dtype)
    exact = cross_entropy(logits.double(), *rest, plain=True)
    other = cross_entropy(logits.clone(), *rest, plain=True)
    ours = cross_entropy(logits.clone(), *rest, plain=False)
    for truth, yardstick, actual in zip(exact, other, ours):
        unit = torch.finfo(actual.dtype).eps * max(1.0, truth.abs().max().item())
        assert (actual - truth).abs().max() <= 2 * (yardstick - truth).abs().max() + 4 * unit
    assert ours[1].dtype == dtype and not ours[1][:, rest[-1].num_real :].any()


def test_cross_entropy_over_two_parts_of_the_vocabulary(emulation):
    """As two ranks compute it, and their sums are added between the kernels."""
    logits, targets, weights, form = cross_entropy_inputs(131, torch.float32)
    losses, gradient = cross_entropy(logits.double(), targets, weights, form, plain=True)
    parts = [logits[:, :70].contiguous(), logits[:, 70:].contiguous()]
    held = [targets.where(targets < 70, -1), (targets - 70).where(targets >= 70, -1)]
    peaks, sums = [], []
    for part, local, real in zip(parts, held, (70, form.num_real - 70)):
        only_here = LossForm(form.vocab_size, real, form.label_smoothing, lambda x, op: peaks.append(x.clone()) or x)
        statistics(part, local, only_here)
    top = torch.maximum(peaks[0], peaks[2])

    def both(x, op):
        if op == "max":
            return x.copy_(top)
        sums.append(x.clone())
        return x

    for part, local, real in zip(parts, held, (70, form.num_real - 70)):
        statistics(part, local, LossForm(form.vocab_size, real, form.label_smoothing, both))
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
