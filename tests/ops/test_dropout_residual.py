import pytest
import torch

from megalite.ops import philox
from megalite.ops.dropout_residual import Mask, dropout_residual
from tests.ops.truth import check, randn, run

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(3, 1), (5, 7), (2, 3, 16), (4, 33), (130, 64), (2, 1001)]
ROWS = torch.tensor([5, 0, (1 << 40) + 1, 2, 9])


def mask_for(shape, p=0.3):
    num_rows = torch.Size(shape[:-1]).numel()
    rows = ROWS.repeat(num_rows // len(ROWS) + 1)[:num_rows]
    return Mask(11, "dropout/a", rows, p)


def rounded(p):
    return round(p * 65536) / 65536


def plain(x, residual, bias, mask):
    keep = philox.keep_mask(mask.seed, mask.purpose, mask.rows, x.shape[-1], mask.p).view(x.shape)
    return residual + torch.where(keep, (x + bias) / (1 - rounded(mask.p)), 0)


def inputs(shape, dtype):
    return [randn(*shape, dtype=dtype), randn(*shape, dtype=dtype, seed=1), randn(shape[-1], dtype=dtype, seed=2)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_native_is_as_exact_as_torch(isa, shape, dtype):
    mask = mask_for(shape)
    check(lambda *a: dropout_residual(*a, mask), lambda *a: plain(*a, mask), inputs(shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reference_is_as_exact_as_torch(reference, dtype):
    mask = mask_for((5, 7))
    check(lambda *a: dropout_residual(*a, mask), lambda *a: plain(*a, mask), inputs((5, 7), dtype))


@pytest.mark.parametrize("length", [1, 2, 3, 5, 31, 32, 33, 100, 256, 511, 512, 513, 1000])
@pytest.mark.parametrize("p", [2**-16, 0.1, 0.5, 1 - 2**-16])
def test_the_mask_is_that_of_keep_mask_bit_for_bit(isa, length, p):
    mask = mask_for((5, length), p)
    y, x_grad = run(lambda x: dropout_residual(x, None, None, mask), [torch.ones(5, length)])
    keep = philox.keep_mask(mask.seed, mask.purpose, mask.rows, length, p)
    assert torch.equal(y != 0, keep) and torch.equal(x_grad != 0, keep)


@pytest.mark.parametrize("parts", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_each_part_may_be_absent(isa, parts, p):
    x, residual, bias = inputs((5, 20), torch.float32)
    mask, (with_residual, with_bias) = (mask_for((5, 20), p) if p else None), parts
    given = [x] + [residual] * with_residual + [bias] * with_bias
    keep = mask.keep(20) if mask else torch.ones(5, 20, dtype=torch.bool)

    def op(x, *rest):
        rest = list(rest)
        return dropout_residual(x, rest.pop(0) if with_residual else None, rest.pop(0) if with_bias else None, mask)

    def plain_torch(x, *rest):
        y = torch.where(keep, (x + rest[-1] if with_bias else x) / (1 - rounded(p)), 0)
        return y + rest[0] if with_residual else y

    check(op, plain_torch, given)


def test_the_sum_has_the_dtype_of_a_wider_residual(isa):
    x, residual, bias = inputs((5, 20), torch.bfloat16)
    mask = mask_for((5, 20))
    y = dropout_residual(x, residual.float() / 3, bias, mask)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, plain(x.float(), residual.float() / 3, bias.float(), mask))


def test_float64_gradients():
    mask = mask_for((5, 4))
    values = [x.requires_grad_() for x in inputs((5, 4), torch.float64)]
    assert torch.autograd.gradcheck(lambda *a: dropout_residual(*a, mask), values)


def test_no_rows_and_strided_rows(isa):
    mask = mask_for((0, 4))
    check(lambda *a: dropout_residual(*a, mask), lambda *a: plain(*a, mask), inputs((0, 4), torch.float32))
    mask = mask_for((6, 9))
    values = [randn(9, 6, dtype=torch.float32), *inputs((6, 9), torch.float32)[1:]]
    check(lambda x, *a: dropout_residual(x.t(), *a, mask), lambda x, *a: plain(x.t(), *a, mask), values)


def test_the_bias_gradient_does_not_depend_on_the_number_of_threads():
    mask, before, results = mask_for((301, 256)), torch.get_num_threads(), []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        results.append(run(lambda *a: dropout_residual(*a, mask), inputs((301, 256), torch.float32))[-1])
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_wrong_shapes_are_named():
    x = torch.ones(2, 4)
    with pytest.raises(AssertionError, match=r"residual \(1, 4\) and x \(2, 4\) do not match"):
        dropout_residual(x, x[:1], None, None)
    with pytest.raises(AssertionError, match=r"bias \(2,\) does not fit x \(2, 4\)"):
        dropout_residual(x, None, torch.ones(2), None)
    with pytest.raises(AssertionError, match="3 row numbers for 2 rows"):
        dropout_residual(x, None, None, mask_for((3, 4)))
