"""The emulation itself: what it computes, and what it refuses."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cuda.build import library

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def checks():
    return ctypes.CDLL(library([HERE / "emulation_checks.cu"]))


@pytest.fixture(scope="module")
def indices():
    csrc = HERE.parents[1] / "megalite" / "csrc" / "cuda"
    return ctypes.CDLL(library([HERE / "index_checks.cu", csrc / "column_sums.cu"]))


def call(checks, name, out, *numbers):
    """The message that kernel ``name`` leaves, without the directories of files."""
    function = getattr(checks, f"run_{name}")
    function.restype = ctypes.c_char_p
    text = function(ctypes.c_void_p(out.ctypes.data), *numbers).decode()
    return text.replace(f"{HERE}/", "")


def line(text: str) -> int:
    """The number of the line of emulation_checks.cu that holds ``text``."""
    lines = (HERE / "emulation_checks.cu").read_text().splitlines()
    return next(number for number, source in enumerate(lines, start=1) if text in source)


def test_shared_memory_and_barriers(checks):
    out = np.zeros((3, 64), np.int32)
    assert call(checks, "reverse", out) == ""
    assert (out == np.arange(64)[::-1] + 100 * np.arange(3)[:, None]).all()


def test_a_forgotten_barrier_shows_in_the_order_of_threads(checks):
    results = []
    for order in range(3):
        checks.emulation_set_order(order)
        results.append(np.zeros(64, np.int32))
        call(checks, "forgotten_barrier", results[-1])
    checks.emulation_set_order(0)
    assert len({tuple(result) for result in results}) == 3


@pytest.mark.parametrize("width", [32, 16, 8])
def test_warp_operations(checks, width):
    out, lanes = np.zeros((5, 32), np.int32), np.arange(32)
    assert call(checks, "shuffles", out, width) == ""
    segment = lanes // width * width
    down, up = np.minimum(lanes + 3, 99), lanes - 3
    assert (out[0] == lanes ^ 1).all()
    assert (out[1] == np.where(down < segment + width, down, lanes)).all()
    assert (out[2] == np.where(up >= segment, up, lanes)).all()
    assert (out[3] == segment + 5).all()
    assert (out[4] == np.where(lanes >= 16, 0xAAAA, 0)).all()


def test_atomic_add(checks):
    out = np.zeros(1, np.int32)
    assert call(checks, "count", out) == "" and out[0] == 2 * 99 * 100 // 2


DIVERGENT = {
    "divergent_barrier": (
        "divergent barrier in block (1,0,0): thread (0,0,0) waits at __syncthreads (emulation_checks.cu:{at}), "
        "but thread (40,0,0) has finished",
        "divergent_barrier() {",
        2,
    ),
    "two_barriers": (
        "divergent barrier in block (0,0,0): thread (0,0,0) waits at __syncthreads (emulation_checks.cu:{at}), "
        "but thread (32,0,0) waits at __syncthreads (emulation_checks.cu:{next})",
        "two_barriers() {",
        1,
    ),
    "missing_lane": (
        "divergent warp operation in block (0,0,0): thread (0,0,0) waits at __shfl_xor_sync (emulation_checks.cu:{at}, "
        "mask 0xffffffff), but thread (7,0,0) waits at __syncthreads (emulation_checks.cu:{next})",
        "missing_lane() {",
        1,
    ),
    "other_masks": (
        "divergent warp operation in block (0,0,0): thread (0,0,0) waits at __shfl_xor_sync (emulation_checks.cu:{at}, "
        "mask 0xffff), but thread (8,0,0) waits at __shfl_xor_sync (emulation_checks.cu:{at}, mask 0xffffffff)",
        "other_masks() {",
        0,
    ),
}


@pytest.mark.parametrize("name", DIVERGENT)
def test_divergence_is_reported_by_block_and_thread(checks, name):
    text, anchor, offset = DIVERGENT[name]
    at = line(anchor) + offset
    assert call(checks, name, np.zeros(64, np.int32)) == text.format(at=at, next=at + 1)


def test_undefined_warp_operations_are_refused(checks):
    out = np.zeros(64, np.int32)
    assert call(checks, "foreign_mask", out) == (
        "__syncwarp with a mask that lacks the calling lane, in block (0,0,0), thread (1,0,0)"
    )
    assert call(checks, "silent_source", out) == (
        "__shfl_sync takes the value of lane 9, which gave none, in block (0,0,0), thread (3,0,0)"
    )


def test_misaligned_vectors_are_refused(checks):
    text = call(checks, "misaligned", np.zeros(8, np.float32))
    assert text == "an address that is not aligned for its vector, in block (0,0,0), thread (0,0,0)"


def test_shared_memory_is_not_zero_at_first(checks):
    out = np.zeros(8, np.float32)
    assert call(checks, "unset_shared", out) == "" and np.isnan(out).all()


SIZES = {
    (1, 1024, 49152): "",
    (1, 1025, 0): "invalid configuration argument",
    (0, 1, 0): "invalid configuration argument",
    (1, 0, 0): "invalid configuration argument",
    (1, 8, 49153): "invalid argument",
}


@pytest.mark.parametrize("blocks, threads, shared", SIZES)
def test_launches_are_limited_as_on_a_gpu(checks, blocks, threads, shared):
    text = call(checks, "sizes", np.zeros(1024, np.float32), blocks, threads, ctypes.c_int64(shared))
    assert text == SIZES[blocks, threads, shared]


@pytest.mark.parametrize("name, dtype", [("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_half_types_are_those_of_torch_bit_for_bit(checks, name, dtype):
    halves = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype).float()
    between = (halves[:-1] + halves[1:]) / 2  # ties, and with the neighbours below what is close to them
    random = torch.randint(-(1 << 31), 1 << 31, (1 << 18,), generator=torch.Generator().manual_seed(1)).int()
    values = torch.cat([halves, between, *(torch.nextafter(between, torch.tensor(limit)) for limit in (-1e38, 1e38))])
    values = torch.cat([values, random.view(torch.float32)])
    bits, back = torch.empty(len(values), dtype=torch.int16), torch.empty(len(values))
    getattr(checks, f"convert_{name}")(
        *(ctypes.c_void_p(x.data_ptr()) for x in (values, bits, back)), ctypes.c_int64(len(values))
    )
    expected = values.to(dtype)
    numbers = ~values.isnan()
    assert torch.equal(bits[numbers], expected.view(torch.int16)[numbers])
    assert torch.equal(back[numbers], expected.float()[numbers]) and back[~numbers].isnan().all()


def test_the_sanitizer_finds_reads_out_of_bounds():
    """So that a run of these tests under it says something."""
    find = ["g++", "-print-file-name=libasan.so"], ["g++", "-print-file-name=libubsan.so"]
    libraries = [subprocess.run(each, capture_output=True, text=True, check=True).stdout.strip() for each in find]
    environment = {"MEGALITE_SANITIZE": "1", "LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    code = (
        "import ctypes, numpy as np; from tests.cuda.test_emulation import HERE, call, library;"
        "checks = ctypes.CDLL(library([HERE / 'emulation_checks.cu'])); call(checks, 'beyond_shared', np.zeros(1))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HERE.parents[1],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0 and "heap-buffer-overflow" in result.stderr and "beyond_shared" in result.stderr


LARGEST = (1 << 31) - 1


def numbers(function, *arguments, count):
    out = (ctypes.c_int64 * count)()
    function(*arguments, out)
    return list(out)


def test_rows_beyond_32_bits(indices):
    """The last warp of the largest grid, which has 8 (2^31 - 1) warps, and strides over them."""
    rows = ctypes.c_int64(1 << 36)
    stride, last = 8 * LARGEST, 8 * (LARGEST - 1) + 7
    got = numbers(indices.warp_rows, LARGEST - 1, LARGEST, 7 * 32 + 5, rows, count=3)
    assert got == [last, last, last + stride]


def test_ranges_of_rows_beyond_32_bits(indices):
    rows, teams = (1 << 33) + 5, 1 << 22
    sizes = ctypes.c_int64(rows), ctypes.c_int64(teams)
    ranges = [numbers(indices.range, team, *sizes, count=2) for team in (0, teams - 1)]
    assert ranges == [[0, rows // teams], [rows * (teams - 1) // teams, rows]]


def test_elements_beyond_32_bits(indices):
    size, blocks = (1 << 33) + 3, 1 << 21
    thread = blocks * 256 - 1
    got = numbers(indices.elements, blocks - 1, blocks, 255, ctypes.c_int64(size), count=2)
    assert got == [4 * thread, 4 * (size // 4 // (blocks * 256))]
    assert numbers(indices.elements, 0, blocks, 2, ctypes.c_int64(size), count=2)[1] == 4 * 4 + 1
    assert numbers(indices.launch_sizes, ctypes.c_int64(size), count=3) == [-(-size // 1024), size, -(-size // 8)]
