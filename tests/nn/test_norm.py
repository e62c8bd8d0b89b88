import pytest
import torch
import torch.nn.functional as F

from megalite.nn.context import LayerContext
from megalite.nn.norm import LayerNorm, RMSNorm
from tests.nn.world import assert_same, random

X = random(5, 3, 16)


def rms_norm(x, weight, epsilon):
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight


def test_layer_norm_by_its_formula():
    norm = LayerNorm("a", 16, 1e-3, LayerContext(dtype=torch.float64))
    norm.weight.data.copy_(random(16, seed=1)), norm.bias.data.copy_(random(16, seed=2))
    centred = X - X.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight + norm.bias
    assert_same(norm(X), expected)


def test_rms_norm_by_its_formula_and_its_gradients_by_autograd():
    norm = RMSNorm("a", 16, 1e-3, LayerContext(dtype=torch.float64))
    norm.weight.data.copy_(random(16, seed=1))
    x, weight, coefficients = (
        X.clone().requires_grad_(),
        norm.weight.detach().clone().requires_grad_(),
        random(5, 3, 16, seed=3),
    )
    expected = rms_norm(x, weight, 1e-3)
    (expected * coefficients).sum().backward()
    own_x = X.clone().requires_grad_()
    y = norm(own_x)
    (y * coefficients).sum().backward()
    assert_same(y, expected)
    assert_same(own_x.grad, x.grad)
    assert_same(norm.weight.grad, weight.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rms_norm_in_16_bits_errs_no_more_than_twice_pytorchs(dtype):
    x, grad = random(64, 32, 256).to(dtype), random(64, 32, 256, seed=1).to(dtype)
    norm = RMSNorm("a", 256, 1e-5, LayerContext(dtype=dtype))
    truth = x.double().requires_grad_()
    rms_norm(truth, norm.weight.detach().double(), 1e-5).backward(grad.double())
    errors = []
    for function in (norm, lambda x: F.rms_norm(x, (256,), norm.weight, 1e-5)):
        own = x.clone().requires_grad_()
        function(own).backward(grad)
        errors.append(float((own.grad.double() - truth.grad).square().mean().sqrt()))
    assert errors[0] <= 2 * errors[1]


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_a_float32_stream_is_normed_in_float32_and_rounded_once(kind):
    x = random(5, 3, 16).float().requires_grad_()
    narrow = kind("a", 16, 1e-5, LayerContext(dtype=torch.bfloat16))
    wide = kind("a", 16, 1e-5, LayerContext(dtype=torch.float32))
    for own, other in zip(narrow.parameters(), wide.parameters()):
        own.data.copy_(random(16, seed=1))
        other.data.copy_(own)
    y, expected = narrow(x), wide(x)
    assert y.dtype == torch.bfloat16 and torch.equal(y, expected.bfloat16())
    coefficients = random(5, 3, 16, seed=3).bfloat16()
    (x_grad,) = torch.autograd.grad(y, x, coefficients, retain_graph=True)
    (expected_grad,) = torch.autograd.grad(expected, x, coefficients.float())
    assert x_grad.dtype == torch.float32 and torch.equal(x_grad, expected_grad)


def test_new_norms_change_nothing_but_the_scale_and_do_not_decay():
    for kind in (LayerNorm, RMSNorm):
        norm = kind("a", 16, 1e-5, LayerContext(), ("tp",))
        assert (norm.weight == 1).all() and norm.weight.spec.name == "a.weight"
        for param in norm.parameters():
            assert not param.spec.decay and param.spec.reduce_axes == ("tp",) and not param.spec.sharded


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_constant_rows_and_zeros_are_finite(kind):
    x = torch.zeros(2, 3, 16, requires_grad=True)
    y = kind("a", 16, 1e-5, LayerContext())(x)
    y.sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()
