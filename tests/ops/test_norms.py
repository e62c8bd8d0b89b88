import pytest
import torch
import torch.nn.functional as F
from tests.ops.truth import check, randn, run

from megalite.ops.layer_norm import add_layer_norm_, layer_norm
from megalite.ops.rms_norm import add_rms_norm_, rms_norm

EPSILON = 1e-5
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(5, 1), (1, 7), (3, 16), (2, 3, 17), (130, 129), (4, 1000), (3, 4097)]


def plain_rms(x, weight):
    return F.rms_norm(x, weight.shape, weight, EPSILON)


def plain_layer(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias, EPSILON)


def plain_add_rms(x, residual, weight):
    return plain_rms(x + residual, weight), x + residual


def plain_add_layer(x, residual, weight, bias):
    return plain_layer(x + residual, weight, bias), x + residual


CASES = {
    "rms": (lambda *a: rms_norm(*a, EPSILON), plain_rms, 1, 1),
    "layer": (lambda *a: layer_norm(*a, EPSILON), plain_layer, 1, 2),
    "add_rms": (lambda x, *rest: add_rms_norm_(x.clone(), *rest, EPSILON), plain_add_rms, 2, 1),
    "add_layer": (lambda x, *rest: add_layer_norm_(x.clone(), *rest, EPSILON), plain_add_layer, 2, 2),
}


def inputs(case, shape, dtype):
    _, _, num_rows, num_vectors = CASES[case]
    rows = [randn(*shape, dtype=dtype, seed=seed) * 3 + 1 for seed in range(num_rows)]
    return rows + [1 + 0.3 * randn(shape[-1], dtype=dtype, seed=9 + seed) for seed in range(num_vectors)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_native_is_as_exact_as_torch(isa, case, shape, dtype):
    op, plain, _, _ = CASES[case]
    check(op, plain, inputs(case, shape, dtype))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reference_is_as_exact_as_torch(reference, case, dtype):
    op, plain, _, _ = CASES[case]
    check(op, plain, inputs(case, (3, 5, 33), dtype))


@pytest.mark.parametrize("case", CASES)
def test_float64_gradients(case):
    op, plain, _, _ = CASES[case]
    values = inputs(case, (3, 5), torch.float64)
    torch.testing.assert_close(run(op, values), run(plain, values), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(op, [x.requires_grad_() for x in values])


@pytest.mark.parametrize("case", CASES)
def test_one_element(isa, case):
    """Where the gradient of x all but vanishes, so that the errors of two computations do not compare."""
    op, plain, _, _ = CASES[case]
    values = inputs(case, (1, 1), torch.float32)
    torch.testing.assert_close(run(op, values), run(plain, values), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_no_rows_and_strided_rows(isa, case):
    op, plain, _, _ = CASES[case]
    check(op, plain, inputs(case, (0, 9), torch.float32))
    check(lambda x, *rest: op(x.t(), *rest), lambda x, *rest: plain(x.t(), *rest), _transposed(case))


def _transposed(case):
    first, *rest = inputs(case, (6, 9), torch.float32)
    return [first.t().contiguous(), *rest]


@pytest.mark.parametrize("case", CASES)
def test_gradients_do_not_depend_on_the_number_of_threads(native_module, case):
    op, _, _, _ = CASES[case]
    values, before, results = inputs(case, (301, 256), torch.float32), torch.get_num_threads(), []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        results.append(run(op, values))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_only_the_sum_is_used():
    x, residual, weight = (value.requires_grad_() for value in inputs("add_rms", (2, 8), torch.float32))
    add_rms_norm_(x.clone(), residual, weight, EPSILON)[1].sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 8)) and torch.equal(residual.grad, x.grad) and weight.grad is None


@pytest.mark.parametrize("case", ["add_rms", "add_layer"])
def test_the_sum_takes_the_place_of_the_first_input(isa, case):
    x, residual, *rest = inputs(case, (3, 64), torch.bfloat16)
    expected, function = x + residual, {"add_rms": add_rms_norm_, "add_layer": add_layer_norm_}[case]
    _, total = function(x, residual, *rest, EPSILON)
    assert total.data_ptr() == x.data_ptr() and torch.equal(x, expected)


def test_wrong_shapes_are_named():
    with pytest.raises(AssertionError, match=r"weight \(3,\) does not fit x \(2, 4\)"):
        rms_norm(torch.ones(2, 4), torch.ones(3), EPSILON)
    with pytest.raises(AssertionError, match=r"bias \(1,\) does not fit x \(2, 4\)"):
        layer_norm(torch.ones(2, 4), torch.ones(4), torch.ones(1), EPSILON)
    with pytest.raises(AssertionError, match=r"residual \(1, 4\) and x \(2, 4\) do not match"):
        add_rms_norm_(torch.ones(2, 4), torch.ones(1, 4), torch.ones(4), EPSILON)
