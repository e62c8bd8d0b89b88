import math

import pytest
import torch
import torch.nn.functional as F

from megalite.ops.bias_gelu import bias_gelu
from megalite.ops.squared_relu import squared_relu
from megalite.ops.swiglu import swiglu
from tests.ops.truth import check, randn, run

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(5, 2), (3, 16), (2, 3, 34), (130, 130), (4, 1000), (3, 4098)]


def plain_gelu(x, bias=0):
    return F.gelu(x + bias, approximate="tanh")


def plain_squared_relu(x, bias=0):
    return F.relu(x + bias).square()


def plain_swiglu(x, bias=0):
    gate, up = (x + bias).chunk(2, dim=-1)
    return F.silu(gate) * up


CASES = {
    "gelu": (bias_gelu, plain_gelu),
    "squared_relu": (squared_relu, plain_squared_relu),
    "swiglu": (swiglu, plain_swiglu),
}


def inputs(shape, dtype, bias):
    x = 2 * randn(*shape, dtype=dtype)
    return [x, randn(shape[-1], dtype=dtype, seed=1)] if bias else [x]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_native_is_as_exact_as_torch(isa, case, shape, dtype, bias):
    check(*CASES[case], inputs(shape, dtype, bias))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reference_is_as_exact_as_torch(reference, case, dtype, bias):
    check(*CASES[case], inputs((3, 5, 34), dtype, bias))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_float64_gradients(case, bias):
    op, plain = CASES[case]
    values = inputs((3, 6), torch.float64, bias)
    torch.testing.assert_close(run(op, values), run(plain, values), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(op, [x.requires_grad_() for x in values])


@pytest.mark.parametrize("case", CASES)
def test_no_rows_no_columns_and_strided_rows(isa, case):
    op, plain = CASES[case]
    check(op, plain, inputs((0, 8), torch.float32, True))
    assert op(torch.ones(3, 0)).shape == (3, 0)
    check(
        lambda x, bias: op(x.t(), bias),
        lambda x, bias: plain(x.t(), bias),
        [randn(8, 6, dtype=torch.float32), randn(8, dtype=torch.float32)],
    )


@pytest.mark.parametrize("case", CASES)
def test_extreme_values(isa, case):
    """Far out the functions are linear, a square, or zero, with gradients to match; a NaN stays in its place."""
    op, plain = CASES[case]
    x = torch.tensor([[-1e30, -100.0, -88.0, -0.0, 0.0, 88.0, 100.0, 1e15, torch.nan, 3.0]] * 2)
    (y, x_grad), (plain_y, plain_grad) = run(op, [x]), run(plain, [x])
    torch.testing.assert_close(y, plain_y, rtol=1e-6, atol=1e-20, equal_nan=True)
    if case != "gelu":  # whose formula in plain torch multiplies infinity by zero here
        torch.testing.assert_close(x_grad, plain_grad, rtol=1e-6, atol=1e-20, equal_nan=True)


def true_gelu(x):
    """GELU without the cancellation in 1 + tanh, in which results far below zero lose all digits."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def with_slopes(function, x):
    x = x.detach().clone().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y, x, torch.ones_like(y))[0]


def of_half_columns(case, x):
    """Inputs whose results are functions of each element of ``x``: swiglu's other half is one."""
    return torch.cat((x, torch.ones_like(x)), dim=-1) if case == "swiglu" else x


@pytest.mark.parametrize("case", CASES)
def test_bfloat16_results_are_rounded_from_close_ones_however_small(isa, case):
    """Every result by itself: within 1.1 times what rounding to bfloat16 can do, which is 2^-8 of it."""
    op, true = CASES[case][0], true_gelu if case == "gelu" else CASES[case][1]
    sizes = torch.cat((torch.linspace(0.01, 9.5, 3000), torch.logspace(-30, 1, 200), torch.logspace(1, 18, 200)))
    x = of_half_columns(case, torch.cat((sizes, -sizes)).bfloat16().view(50, -1))
    (y, grad), (true_y, true_grad) = with_slopes(op, x), with_slopes(true, x.double())
    allowed = 1.1 * 2**-8 * true_y.abs() + torch.where(true_y.abs() < 1e-28, 1e-28, 1e-38)  # the least may be zero
    assert ((y - true_y).abs() <= allowed).all()
    # Slopes pass through zero, as sums of terms around 1.
    assert ((grad - true_grad).abs() <= 1.1 * 2**-8 * true_grad.abs() + 1e-3).all()


@pytest.mark.parametrize("case", CASES)
def test_bfloat16_results_of_extreme_inputs(isa, case):
    op, plain = CASES[case]
    x = torch.tensor([-3e38, -1e20, -100.0, -0.0, 0.0, 100.0, 1e17, torch.nan, torch.inf] * 15)
    x = of_half_columns(case, x.bfloat16().unsqueeze(0))
    (y, grad), (true_y, true_grad) = with_slopes(op, x), with_slopes(plain, x.double())
    torch.testing.assert_close(y.double(), true_y, rtol=2**-7, atol=1e-28, equal_nan=True)
    finite = x.isfinite()
    torch.testing.assert_close(grad.double()[finite], true_grad[finite], rtol=2**-7, atol=1e-28, equal_nan=True)
    assert grad[:, : y.shape[1]][y.isnan()].isnan().all()


@pytest.mark.parametrize("case", CASES)
def test_bias_gradients_do_not_depend_on_the_number_of_threads(case):
    op, _ = CASES[case]
    values, before, results = inputs((301, 256), torch.float32, True), torch.get_num_threads(), []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        results.append(run(op, values)[-1])
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_wrong_shapes_are_named():
    with pytest.raises(AssertionError, match=r"bias_gelu: bias \(3,\) does not fit x \(2, 4\)"):
        bias_gelu(torch.ones(2, 4), torch.ones(3))
    with pytest.raises(AssertionError, match=r"swiglu: the width of x \(2, 3\) must be even"):
        swiglu(torch.ones(2, 3))
