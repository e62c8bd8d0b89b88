"""Checks of the kernels over flat tensors and logits against float64, on any device."""

import pytest
import torch
from tests.ops.truth import randn

from megalite.ops import philox
from megalite.ops.adamw import AdamW, adamw_, reference_adamw_
from megalite.ops.linear_cross_entropy import LossForm, Tokens, statistics, turn_into_gradient_
from megalite.ops.norm import sum_of_squares
from megalite.state import Box

NUMBERS = AdamW(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, step=3, grad_factor=0.3)

BOXES = [((7,), Box((0,), (7,))), ((9, 10), Box((2, 3), (5, 6))), ((3, 4, 8), Box((1, 0, 0), (2, 4, 8)))]
BOXES += [((1 << 33, 6), Box(((1 << 33) - 50, 1), (50, 5)))]
"""(Shape of a whole tensor, part of it): aligned to the blocks of random words, and not."""


def adamw_inputs(size, dtype=torch.float32, offset=0, device="cpu"):
    """Parameter, gradient and moments, float32 numbers that begin at ``offset`` elements from an aligned address."""
    tensors = [randn(size, dtype=torch.float32, seed=seed) for seed in range(4)]
    tensors[3].square_()
    return [torch.cat((x.new_zeros(offset), x)).to(device, dtype)[offset:] for x in tensors]


def check_adamw(device, dtype, size, offset):
    param, grad, *moments = adamw_inputs(size, offset=offset, device=device)
    copy = torch.full((size + offset,), torch.nan, dtype=dtype, device=device)[offset:]
    adamw_(param, grad, tuple(moments), NUMBERS, copy)
    truth, plain = adamw_inputs(size, torch.float64, device=device), adamw_inputs(size, device=device)
    for tensors in (truth, plain):
        reference_adamw_(tensors[0], tensors[1], tuple(tensors[2:]), NUMBERS)
    for ours, other, exact in zip((param, *moments), (plain[0], *plain[2:]), (truth[0], *truth[2:])):
        error, allowed = (ours - exact).abs(), 2 * (other - exact).abs()
        assert size == 0 or error.max() <= allowed.max() + 1e-7 * exact.abs().max()
    assert torch.equal(copy, param.to(dtype))


def check_sum_of_squares(device, dtype, size, factor):
    x = randn(size, dtype=dtype).to(device)
    scaled = x.clone() if factor == 1 else x * factor
    assert sum_of_squares(x, factor).item() == pytest.approx(scaled.double().square().sum().item(), rel=1e-12)
    assert torch.equal(x, scaled)


def check_normal_numbers(device, dtype, shape, box):
    """They are the bits of the reference, which is what computes float64 numbers."""
    actual = philox.normal_box(3, "w", shape, box, 0.5, dtype, device)
    expected = philox.normal_box(3, "w", shape, box, 0.5, torch.float64)
    assert torch.equal(actual.cpu(), expected.float().to(dtype))


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


def cross_entropy_inputs(cols, dtype, device="cpu"):
    rows, vocabulary = 5, max(1, cols - 3)
    logits = 3 * randn(rows, cols, dtype=dtype).to(device)
    logits[:, vocabulary:] = torch.nan  # padding counts for nothing
    targets = torch.tensor([0, vocabulary - 1, vocabulary // 2, 0, vocabulary // 3], device=device)
    weights = torch.tensor([1.0, 0.0, 0.5, 1.0, 2.0], device=device)
    return logits, targets, weights, LossForm(vocabulary, vocabulary, label_smoothing=0.1)


def check_cross_entropy(device, dtype, cols):
    logits, *rest = cross_entropy_inputs(cols, dtype, device)
    exact = cross_entropy(logits.double(), *rest, plain=True)
    other = cross_entropy(logits.clone(), *rest, plain=True)
    ours = cross_entropy(logits.clone(), *rest, plain=False)
    for truth, yardstick, actual in zip(exact, other, ours):
        unit = torch.finfo(actual.dtype).eps * max(1.0, truth.abs().max().item())
        assert (actual - truth).abs().max() <= 2 * (yardstick - truth).abs().max() + 4 * unit
    assert ours[1].dtype == dtype and not ours[1][:, rest[-1].num_real :].any()
