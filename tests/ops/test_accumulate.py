import pytest
import torch
from tests.ops.truth import randn

from megalite.ops.accumulate import add_, add_column_sums_

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(0, 5), (1, 1), (3, 17), (130, 64), (301, 257)]


def near(actual, total, added):
    """Of float32 sums in an order of their own, each of at most 301 numbers about 1 and a start of 100."""
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), total.double() + added, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_equal_float64(isa, dtype, shape):
    x, start = randn(*shape, dtype=dtype), 100 + randn(*shape, dtype=torch.float32, seed=1)
    total, columns = start.clone(), torch.full((shape[1],), 100.0)
    add_(total, x)
    near(total, start, x.double())
    add_column_sums_(columns, x)
    near(columns, torch.tensor(100.0), x.double().sum(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_references_equal_float64(reference, dtype):
    x, wide = randn(30, 7, dtype=dtype), torch.float64 if dtype == torch.float64 else torch.float32
    total, columns = torch.full((30, 7), 100.0, dtype=wide), torch.full((7,), 100.0, dtype=wide)
    add_(total, x)
    add_column_sums_(columns, x)
    torch.testing.assert_close(total.double(), 100 + x.double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(columns.double(), 100 + x.double().sum(0), rtol=1e-6, atol=0)


def test_strided_tensors_are_right_too(isa):
    x, total = randn(6, 4, dtype=torch.bfloat16), torch.zeros(4, 6)
    add_(total, x.t())
    assert torch.equal(total, x.t().float())
    add_(total.t(), x)
    assert torch.equal(total, 2 * x.t().float())
    columns = torch.zeros(8)[::2]
    add_column_sums_(columns, x)
    torch.testing.assert_close(columns, x.float().sum(0))


def test_column_sums_do_not_depend_on_the_number_of_threads(native_module):
    x, before, results = randn(301, 1000, dtype=torch.bfloat16), torch.get_num_threads(), []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        results.append(torch.zeros(1000))
        add_column_sums_(results[-1], x)
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_wrong_shapes_are_named():
    with pytest.raises(AssertionError, match=r"total \(2, 3\) and x \(3, 2\) do not match"):
        add_(torch.zeros(2, 3), torch.zeros(3, 2))
    with pytest.raises(AssertionError, match=r"total \(3,\) does not fit x \(3, 2\)"):
        add_column_sums_(torch.zeros(3), torch.zeros(3, 2))
