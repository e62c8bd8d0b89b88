import math
import mmap

import pytest
import torch

from megalite.ops.norm import reference_sum_of_squares, sum_of_squares


def test_accumulates_in_float64():
    # 2^24 ones after a large element: a float32 sum would stop growing at 2^24
    tensor = torch.ones(2**24 + 1)
    tensor[0] = 2.0**12
    assert sum_of_squares(tensor).item() == 2**24 + 2**24
    assert sum_of_squares(torch.full((2,), 3e38)).item() == pytest.approx(2 * 9e76, rel=1e-6)


def test_empty_and_low_precision():
    assert sum_of_squares(torch.empty(0)).item() == 0.0
    assert sum_of_squares(torch.full((300_000,), 3.0, dtype=torch.bfloat16)).item() == 2_700_000


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_one_bad_element_is_seen(value):
    tensor = torch.ones(300_000)
    tensor[-1] = value
    assert not math.isfinite(sum_of_squares(tensor).item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [0, 1, 5, 33, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_native_equals_the_reference(isa, size, dtype, factor):
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
    native_tensor, other = tensor.clone(), tensor.clone()
    actual, expected = sum_of_squares(native_tensor, factor), reference_sum_of_squares(other, factor)
    assert actual.dtype == torch.float64 and actual.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.equal(native_tensor, other) and torch.equal(other, tensor if factor == 1 else tensor * factor)


def test_a_strided_tensor():
    tensor = torch.arange(10.0)
    assert sum_of_squares(tensor[::2]).item() == 4 + 16 + 36 + 64


def test_float64_elements():
    assert sum_of_squares(torch.full((3,), 1e-200, dtype=torch.float64)).item() == 0
    assert sum_of_squares(torch.full((3,), 1e150, dtype=torch.float64)).item() == pytest.approx(3e300)


def test_the_sum_does_not_depend_on_the_number_of_threads(native_module):
    tensor, before, results = torch.randn(1_000_001), torch.get_num_threads(), []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        results.append(sum_of_squares(tensor).item())
    torch.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_element_numbers_beyond_32_bits(native_module):
    """The tensor is one page of zeros, mapped over and over, but for its ends: it takes no memory."""
    size = 2**31 + 70_001
    memory = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor = torch.frombuffer(memory, dtype=torch.bfloat16)
    tensor[0], tensor[-1] = 3, 4
    partial = torch.empty(-(-size // 65_536), dtype=torch.float64)
    native_module.cpu.sum_of_squares(partial.data_ptr(), tensor.data_ptr(), size, 1.0, 1)
    assert partial.sum().item() == 25 and partial[-1].item() == 16
