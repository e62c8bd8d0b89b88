"""The CUDA kernels of every op, run by the emulation."""

import pytest
import torch
from tests.cuda.cases import CASES, COLS, DTYPES, rotary
from tests.cuda.conftest import ORDERS
from tests.ops.truth import check, randn, run

ROTARY = [(2, 1, False), (2, 1, True), (6, 2, False), (6, 2, True), (64, 16, False), (64, 32, True), (64, 32, False)]
"""(head dim, rotated pairs, interleaved): single elements and packs, all channels and a part."""


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_as_exact_as_torch(emulation, case, dtype, cols):
    inputs = case.inputs(4, cols, dtype)
    if cols > 1:
        check(case.op, case.plain, inputs)
    else:  # of norms over one element nothing is left but rounding
        close = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(run(case.op, inputs), run(case.plain, inputs), rtol=close, atol=max(close, 2e-4))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_empty(emulation, case):
    check(case.op, case.plain, case.inputs(0, 33, torch.float32))


@pytest.mark.parametrize(
    "name, rows, cols",
    [("layer_norm", 1100, 8), ("bias_swiglu", 1100, 8), ("bias_gelu", 600, 1032), ("dropout", 600, 1032)],
)
def test_sums_over_more_rows_than_teams(emulation, name, rows, cols):
    check(CASES[name].op, CASES[name].plain, CASES[name].inputs(rows, cols, torch.float32))


@pytest.mark.parametrize("name", ["layer_norm", "bias_swiglu"])
def test_sums_too_long_for_shared_memory(emulation, name):
    check(CASES[name].op, CASES[name].plain, CASES[name].inputs(3, 12800, torch.bfloat16))


def off_by_one(x):
    """``x`` at an address that is not a multiple of 16 bytes."""
    moved = torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)
    assert moved.data_ptr() % 16 != 0 and moved.is_contiguous()
    return moved


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_unaligned(emulation, case, dtype):
    check(lambda *inputs: case.op(*map(off_by_one, inputs)), case.plain, case.inputs(4, 128, dtype))


@pytest.mark.parametrize("cols", [127, 1200])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_order_of_threads_does_not_show(emulation, case, cols):
    """It would if a barrier were missing."""
    results = []
    for order in ORDERS:
        emulation.order(order)
        results.append(run(case.op, case.inputs(10, cols, torch.bfloat16)))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


@pytest.mark.parametrize("head_dim, half, interleaved", ROTARY)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rotary(emulation, dtype, head_dim, half, interleaved):
    shape = (3, 2, 2, 4, head_dim)
    case = rotary(shape, 3, half, interleaved)
    check(case.op, case.plain, [randn(3, 2, 8 * head_dim, dtype=dtype)])
