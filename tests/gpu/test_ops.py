"""Every CUDA kernel on the device: the checks that tests/cuda runs by emulation, and sizes of real models."""

import pytest
import torch
from tests.cuda.cases import CASES, DTYPES, SCALE, Case, row_numbers, rotary
from tests.cuda.checks import (
    BOXES,
    check_adamw,
    check_cross_entropy,
    check_normal_numbers,
    check_sum_of_squares,
)
from tests.ops.truth import check, randn, run

from megalite import native
from megalite.ops.dropout_residual import Mask, dropout_residual
from megalite.ops.kernels import module_for
from megalite.ops.norm import sum_of_squares
from megalite.ops.rms_norm import rms_norm
from megalite.ops.softmax import scaled_causal_softmax

SHAPES = [(0, 33), (6, 31), (6, 128), (6, 1000), (6, 4097), (6, 12_800), (3000, 128), (2048, 4096)]
DEVICE = torch.device("cuda")


def on_device(tensors):
    return [x.to(DEVICE) for x in tensors]


def inputs(case: Case, rows: int, cols: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return on_device(case.inputs(rows, cols, dtype))


def test_the_kernels_are_in_use():
    assert module_for("cuda") is not None, native.cuda_reason()


@pytest.mark.parametrize("rows, cols", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_as_exact_as_torch(case, dtype, rows, cols):
    check(case.op, case.plain, inputs(case, rows, cols, dtype))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_two_runs_give_the_same_bits(case):
    values = inputs(case, 2000, 1024, torch.bfloat16)
    assert all(map(torch.equal, run(case.op, values), run(case.op, values)))


@pytest.mark.parametrize(
    "head_dim, half, interleaved", [(6, 2, True), (128, 64, False), (128, 64, True), (64, 16, False)]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rotary(dtype, head_dim, half, interleaved):
    case = rotary((64, 2, 4, 6, head_dim), 5, half, interleaved)
    check(case.op, case.plain, on_device([randn(64, 2, 24 * head_dim, dtype=dtype)]))


@pytest.mark.parametrize("size, offset", [(0, 0), (5, 1), (4097, 0), (4097, 1), (3_000_001, 0)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adamw(dtype, size, offset):
    check_adamw(DEVICE, dtype, size, offset)


@pytest.mark.parametrize("size", [0, 1, 4097, 3_000_001])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sum_of_squares(dtype, size):
    check_sum_of_squares(DEVICE, dtype, size, 0.3)


@pytest.mark.parametrize("shape, box", BOXES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_normal_numbers_are_those_of_the_cpu(dtype, shape, box):
    check_normal_numbers(DEVICE, dtype, shape, box)


@pytest.mark.parametrize("cols", [1, 33, 1000, 4097, 50_304])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cross_entropy(dtype, cols):
    check_cross_entropy(DEVICE, dtype, cols)


@pytest.mark.parametrize("cols", [127, 4096])
def test_dropout_masks_are_those_of_the_cpu(cols):
    x = torch.ones(50, cols)
    masks = [dropout_residual(x.to(d), None, None, Mask(5, "m", row_numbers(x).to(d), 0.25)) for d in ("cpu", DEVICE)]
    assert torch.equal(masks[0], masks[1].cpu())


def test_work_is_queued_on_the_current_stream():
    """A kernel that overtook the long product before it would see zeros."""
    side, weight = torch.cuda.Stream(), torch.ones(1024, device=DEVICE)
    factors, x = torch.ones(8192, 8192, device=DEVICE), torch.zeros(8192, 1024, device=DEVICE)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(5):
            torch.mm(factors, factors[:, :1024], out=x)
        y = rms_norm(x, weight, 0.0)
    side.synchronize()
    torch.testing.assert_close(y, torch.ones_like(y))


def test_more_than_2_to_the_31_elements():
    """Takes 9 GB of the device's memory."""
    rows, cols = (1 << 31) // 1024 + 8, 1024
    x = torch.zeros(rows, cols, dtype=torch.bfloat16, device=DEVICE)
    x[-1] = 2
    assert sum_of_squares(x.view(-1)).item() == 4 * cols
    y = rms_norm(x, torch.ones(cols, dtype=torch.bfloat16, device=DEVICE), 1e-6)
    assert (y[-1] == 1).all() and torch.count_nonzero(y) == cols


def test_softmax_rows_have_no_longest_length():
    scores = torch.randn(1, 8, 20_001, device=DEVICE, dtype=torch.bfloat16)
    later = torch.ones(8, 20_001, dtype=torch.bool, device=DEVICE).triu_(19_994)
    check(
        lambda x: scaled_causal_softmax(x, SCALE),
        lambda x: (x * SCALE).masked_fill(later, -torch.inf).softmax(-1),
        [scores],
    )
