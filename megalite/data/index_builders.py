"""The index computations that deserve C++, each with a numpy version that gives the same array."""

import os

import numpy as np

from megalite.native import native

_POSITIONS_PER_THREAD = 1 << 20
"""Below this many documents a thread costs more than it saves."""
_MAX_NATIVE_SHUFFLE = 1 << 32
"""Beyond, numpy draws two 32-bit numbers an element."""


def sample_index_dtype(num_positions: int) -> np.dtype:
    """The dtype of a sample index over ``num_positions`` documents (repetitions counted): int64 where int32 would wrap.

    Offsets never need more: a document's length is stored as int32.
    """
    return np.dtype(np.int32 if num_positions <= np.iinfo(np.int32).max else np.int64)


def build_sample_index(
    lengths: np.ndarray, order: np.ndarray, num_samples: int, seq_length: int, extra: int = 1
) -> np.ndarray:
    """Where each sample starts, when documents are read one after another and cut every ``seq_length`` tokens.

    ``lengths`` int32 ``[documents]``; ``order`` int32 or int64: document numbers in reading order. The result is
    ``[num_samples + 1, 2]``: row k holds, for the first token of sample k, the position in ``order`` and the offset in
    that document. A sample shares its last ``extra`` (0 or 1) tokens with the next one; with 0, a sample that starts
    where a document starts is given as the end of the document before. Rows beyond the last token hold the last
    document and its length minus ``extra``. These are Megatron-LM's conventions.
    """
    dtype = sample_index_dtype(len(order))
    module = native()
    if module is None:
        return _sample_index_numpy(lengths, order, num_samples, seq_length, extra).astype(dtype)
    # The lengths come unaligned from a mapped index file.
    aligned = np.require(lengths, np.int32, ["C_CONTIGUOUS", "ALIGNED"])
    contiguous = np.require(order, order.dtype if order.dtype == np.int64 else np.int32, ["C_CONTIGUOUS", "ALIGNED"])
    threads = max(1, min(os.cpu_count() or 1, len(order) // _POSITIONS_PER_THREAD))
    return module.build_sample_index(aligned, contiguous, num_samples, seq_length, extra, dtype == np.int64, threads)


def _sample_index_numpy(
    lengths: np.ndarray, order: np.ndarray, num_samples: int, seq_length: int, extra: int
) -> np.ndarray:
    ends = np.cumsum(lengths[order], dtype=np.int64)
    starts = np.arange(num_samples + 1, dtype=np.int64) * seq_length
    # The document of the last token that sample k - 1 reads.
    position = np.searchsorted(ends, starts + (extra - 1), side="right")
    beyond = position == len(order)
    position[beyond] = len(order) - 1
    offset = starts - (ends[position] - lengths[order[position]])
    offset[beyond] = lengths[order[-1]] - extra
    index = np.stack([position, offset], axis=1)
    index[0] = 0
    return index


def build_blend(weights: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which data set (int16 ``[size]``) and which of its samples (int64 ``[size]``) each sample of a blend comes from.

    ``weights`` float64, summing to one. Sample i comes from the data set that is furthest behind its share: the largest
    ``weight * max(i, 1) - taken``, the first among equals. Any prefix of the blend is close to the weights.
    """
    module = native()
    if module is None:
        return _blend_numpy(weights, size)
    return module.build_blend(np.ascontiguousarray(weights, np.float64), size)


def _blend_numpy(weights: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    dataset, sample = np.empty(size, np.int16), np.empty(size, np.int64)
    taken = np.zeros(len(weights), np.int64)
    for i in range(size):
        best = np.argmax(weights * max(i, 1) - taken)
        dataset[i], sample[i] = best, taken[best]
        taken[best] += 1
    return dataset, sample


def shuffle(array: np.ndarray, random: np.random.RandomState) -> None:
    """``random.shuffle(array)`` of a contiguous array of integers of 4 or 8 bytes: the same order, and ``random`` in
    the same state afterwards."""
    module = native()
    if module is None or len(array) > _MAX_NATIVE_SHUFFLE:
        random.shuffle(array)
        return
    assert array.flags.c_contiguous and array.itemsize in (4, 8), "shuffle takes contiguous integers of 4 or 8 bytes"
    state = random.get_state(legacy=False)
    twister = state["state"]
    twister["key"] = np.ascontiguousarray(twister["key"], np.uint32)
    twister["pos"] = module.shuffle(array, twister["key"], twister["pos"])
    random.set_state(state)
