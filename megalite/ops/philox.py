"""Random numbers as a function: Philox4x32-10 of (seed, purpose, step, element index), in exact integer arithmetic.

There is no generator state anywhere. An element's number depends on its index in the global tensor alone, so a rank
computes just the part it owns, in any order, on any device, and gets the same bits as a rank that computes the whole.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

import hashlib
import math
from typing import Callable, Iterator

import torch

from megalite.ops.box_muller import box_muller
from megalite.ops.kernels import find
from megalite.state import Box

Key = tuple[int, int]

KERNELS = ("normal_fill",)

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_DROPOUT_STEPS = 1 << 16
"""Dropout compares random numbers of 16 bits: two of each word, for the words are what it takes time to make."""
_TILE = 1 << 17
"""Elements computed at once: small enough that the 64-bit intermediates stay in cache."""


def philox4x32(counter: tuple[torch.Tensor, ...], key: Key) -> tuple[torch.Tensor, ...]:
    """The block cipher: four int64 tensors of 32-bit counter words to four int64 tensors of 32-bit random words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # The 64-bit products wrap around as signed numbers; their bits are those of the unsigned product.
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = (product1 >> 32).bitwise_and_(_LOW).bitwise_xor_(c1).bitwise_xor_(k0)
        c2 = (product0 >> 32).bitwise_and_(_LOW).bitwise_xor_(c3).bitwise_xor_(k1)
        c1, c3 = product1.bitwise_and_(_LOW), product0.bitwise_and_(_LOW)
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0, c1, c2, c3


def stream_key(seed: int, purpose: str) -> Key:
    """Two key words: a hash of seed and purpose, so that no two purposes share a stream."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def drop_threshold(p: float) -> int:
    """Random numbers of 16 bits below it drop their element: with probability ``p``, rounded to a multiple of 2^-16."""
    threshold = round(p * _DROPOUT_STEPS)
    assert 0 < threshold < _DROPOUT_STEPS or p == 0, f"dropout with probability {p} would drop all or nothing"
    return threshold


def keep_scale(p: float) -> float:
    """Factor of the elements that dropout keeps: 1 / (1 - the rounded ``p``), so that expectations are exact."""
    return 1 / (1 - drop_threshold(p) / _DROPOUT_STEPS)


def words(seed: int, purpose: str, block: torch.Tensor, step: int = 0) -> torch.Tensor:
    """Random 32-bit words of ``block`` (int64, any shape) of (seed, purpose, step): int64, ``block.shape + (4,)``."""
    high = (block >> 32).bitwise_and_(_LOW)
    step_words = (torch.full_like(block, step & _LOW), torch.full_like(block, step >> 32))
    return torch.stack(philox4x32((block & _LOW, high, *step_words), stream_key(seed, purpose)), dim=-1)


def keep_mask(seed: int, purpose: str, rows: torch.Tensor, length: int, p: float) -> torch.Tensor:
    """Which elements dropout keeps: bool [len(rows), length], False with probability ``p``.

    ``rows`` (int64, 1-d) holds row numbers of a matrix of rows of ``length`` elements, so column j of row r is element
    ``r * length + j`` of the stream of (seed, purpose). What decides on element i is half ``i % 2``, the low one first,
    of word ``i // 2 % 4`` of block ``i // 8``: so ``p`` is rounded to a multiple of 2^-16. Exact to the bit on every
    device.
    """
    threshold = drop_threshold(p)
    keep = torch.empty(rows.numel(), length, dtype=torch.bool, device=rows.device)
    starts = rows * length
    for at, columns in _tiles(rows.numel(), length):
        values = _run_values(
            lambda block: _halves(words(seed, purpose, block)),
            8,
            starts[at] + columns.start,
            columns.stop - columns.start,
            length % 8 == 0,
        )
        torch.ge(values, threshold, out=keep[at, columns])
    return keep


def normal_box(
    seed: int,
    purpose: str,
    global_shape: tuple[int, ...],
    box: Box,
    std: float,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Normal numbers of mean 0 and deviation ``std`` for the part ``box`` of a tensor of ``global_shape``.

    Equal, bit for bit, to the same part of the whole tensor, computed on any device: :func:`box_muller` in float64,
    rounded to ``dtype`` (to 16-bit types by way of float32). Element i comes from word ``i % 4`` of block ``i // 4``.
    """
    values = torch.empty(box.extent, dtype=dtype, device=device)
    if values.numel() == 0:
        return values
    starts, length = _contiguous_runs(global_shape, box)
    kernels = find(KERNELS, values)
    if kernels is not None:
        starts = starts.to(device)
        kernels("normal_fill", values, starts, len(starts), length, std, *stream_key(seed, purpose), dtype)
        return values
    aligned = length % 4 == 0 and not bool((starts % 4).any())
    starts, flat = starts.to(device), values.view(-1, length)
    for at, columns in _tiles(len(starts), length):
        normals = _run_values(
            lambda block: box_muller(words(seed, purpose, block)),
            4,
            starts[at] + columns.start,
            columns.stop - columns.start,
            aligned,
        )
        flat[at, columns] = normals.mul_(std).to(dtype)
    return values


def _halves(words: torch.Tensor) -> torch.Tensor:
    """The 16-bit halves of 32-bit words [..., 4], the low one of each word first: [..., 8]."""
    return torch.stack((words & 0xFFFF, words >> 16), dim=-1).flatten(-2)


def _run_values(
    generate: Callable[[torch.Tensor], torch.Tensor],
    per_block: int,
    starts: torch.Tensor,
    length: int,
    aligned: bool,
) -> torch.Tensor:
    """Values of the elements ``starts[i] + j``, j < length, as [len(starts), length], from whole blocks.

    ``generate``: numbers of blocks [...] to the values of their elements [..., per_block]; ``aligned``: whether all
    starts, and ``length``, are multiples of ``per_block``.
    """
    blocks_per_run = length // per_block if aligned else (length + 2 * per_block - 2) // per_block
    block = (starts // per_block).unsqueeze(1) + torch.arange(blocks_per_run, device=starts.device)
    values = generate(block).flatten(1)
    if aligned:
        return values
    within = (starts % per_block).unsqueeze(1) + torch.arange(length, device=starts.device)
    return values.gather(1, within)


def _tiles(num_rows: int, length: int) -> Iterator[tuple[slice, slice]]:
    """Cover a matrix with tiles of at most about ``_TILE`` elements whose columns start at multiples of eight."""
    rows = max(1, _TILE // max(length, 1))
    for top in range(0, num_rows, rows):
        for left in range(0, length, _TILE):
            yield slice(top, min(top + rows, num_rows)), slice(left, min(left + _TILE, length))


def _contiguous_runs(global_shape: tuple[int, ...], box: Box) -> tuple[torch.Tensor, int]:
    """A box as runs of consecutive global elements: the index of each run's first one (int64), and their length."""
    length, dim = 1, len(global_shape)
    while dim > 0:
        dim -= 1
        length *= box.extent[dim]
        if box.extent[dim] != global_shape[dim]:
            break
    strides = [math.prod(global_shape[d + 1 :]) for d in range(len(global_shape))]
    first = sum(offset * stride for offset, stride in zip(box.offset, strides))
    starts = torch.tensor([first], dtype=torch.int64)
    for extent, stride in zip(box.extent[:dim], strides):
        starts = (starts.unsqueeze(1) + torch.arange(extent) * stride).flatten()
    return starts, length
