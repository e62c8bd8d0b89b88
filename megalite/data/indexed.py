"""Tokenized corpora on disk: the ``PREFIX.bin`` / ``PREFIX.idx`` pair of Megatron-LM, read through a memory map.

``.bin`` holds the token ids of all sequences, one after another, nothing else. ``.idx`` holds, little-endian:
magic (9 bytes), version (uint64), dtype code (uint8), number of sequences S (uint64), number of documents + 1 = D
(uint64), then S sequence lengths (int32), S byte offsets into ``.bin`` (int64), D document starts (int64: the number
of each document's first sequence; the last entry is S) and, for multimodal corpora only, S modes (int8).
docs/data-format.md shows one byte by byte. Files are written by :mod:`megalite.data.indexed_builder`.
"""

import glob
import os
import struct
from typing import Any, NamedTuple

import numpy as np

from megalite.data.reader import MmapReader
from megalite.errors import DataError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPES = {
    code: np.dtype(name) for code, name in enumerate(("<u1", "<i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"), start=1)
}
"""The dtype codes of the format. Note that 6 is float64 and 7 float32."""
_BYTE = np.dtype(np.uint8)
_PIECE = 1 << 20
"""Sequences that are validated at once."""


def bin_path(prefix: str) -> str:
    """The file of token ids of a corpus."""
    return prefix + ".bin"


def idx_path(prefix: str) -> str:
    """The file of lengths, offsets and documents of a corpus."""
    return prefix + ".idx"


def optimal_dtype(vocab_size: int) -> np.dtype:
    """The dtype for the ids of a vocabulary: uint16 below 65500 entries, else int32 (Megatron-LM's rule)."""
    return np.dtype("<u2") if vocab_size < 65500 else np.dtype("<i4")


class Header(NamedTuple):
    """The fixed part of an ``.idx`` file, and where its arrays lie (byte offsets)."""

    dtype: np.dtype
    num_sequences: int
    num_document_indices: int

    @property
    def pointers_at(self) -> int:
        return HEADER.size + 4 * self.num_sequences

    @property
    def documents_at(self) -> int:
        return self.pointers_at + 8 * self.num_sequences

    @property
    def modes_at(self) -> int:
        return self.documents_at + 8 * self.num_document_indices

    def pack(self) -> bytes:
        code = next(code for code, dtype in DTYPES.items() if dtype == self.dtype)
        return HEADER.pack(MAGIC, VERSION, code, self.num_sequences, self.num_document_indices)


def open_index(prefix: str) -> tuple[MmapReader, Header]:
    """Map an index, and check its fixed part against the rules of the format and the size of the file."""
    path = idx_path(prefix)
    if not os.path.exists(path):
        raise DataError(
            f"{path} must exist for --data-path {prefix}: give the prefix without .bin or .idx, or write the "
            f"corpus with tools/preprocess_data.py.{_longer_names(prefix)}"
        )
    index = MmapReader(path)
    if index.size < HEADER.size:
        raise DataError(
            f"{path} must hold at least {HEADER.size} bytes; it holds {index.size}: it was cut short, write it again."
        )
    magic, version, code, num_sequences, num_document_indices = HEADER.unpack(index.read(_BYTE, HEADER.size, 0))
    if magic != MAGIC:
        raise DataError(f"{path} must start with {MAGIC!r}; it starts with {magic!r}: it is no index of this format.")
    if version != VERSION:
        raise DataError(
            f"{path} must be of version {VERSION}; it says {version}: it is damaged, or was written on a "
            "big-endian machine."
        )
    if code not in DTYPES:
        raise DataError(f"{path} must have a dtype code from 1 to {len(DTYPES)}; it says {code}: it is damaged.")
    header = Header(DTYPES[code], num_sequences, num_document_indices)
    if index.size not in (header.modes_at, header.modes_at + num_sequences):
        raise DataError(
            f"{path} must hold {header.modes_at} bytes for its {num_sequences} sequences and "
            f"{num_document_indices} document indices; it holds {index.size}: it is damaged, write it again."
        )
    return index, header


def read_header(prefix: str) -> Header:
    """The fixed part of an index, checked."""
    return open_index(prefix)[1]


def _longer_names(prefix: str) -> str:
    """The corpora that were written with --output-prefix ``prefix``: its name is not yet theirs."""
    found = sorted(path.removesuffix(".idx") for path in glob.glob(f"{glob.escape(prefix)}_*.idx"))
    return f" There is {', '.join(found[:3])}: perhaps that is meant." if found else ""


class IndexedDataset:
    """Sequences of token ids, by number. Opening costs no work per document.

    ``sequence_lengths`` is int32 ``[S]``, ``document_indices`` int64 ``[documents + 1]``, ``sequence_modes`` int8
    ``[S]`` or None; all are read-only views of the mapped ``index``; ``tokens`` reads ``.bin``. Raises
    :class:`DataError` for files that are missing, damaged, or do not belong together.
    """

    def __init__(self, prefix: str | os.PathLike[str]):
        self.prefix = os.fspath(prefix)
        self.index, self.header = open_index(self.prefix)
        if not os.path.exists(bin_path(self.prefix)):
            raise DataError(
                f"{bin_path(self.prefix)} must exist beside {idx_path(self.prefix)}: restore it, or write the "
                "corpus again."
            )
        index, header = self.index, self.header
        self.sequence_lengths = index.read(np.dtype("<i4"), header.num_sequences, HEADER.size)
        self._pointers = index.read(np.dtype("<i8"), header.num_sequences, header.pointers_at)
        self.document_indices = index.read(np.dtype("<i8"), header.num_document_indices, header.documents_at)
        self.sequence_modes = None
        if index.size > header.modes_at:
            self.sequence_modes = index.read(np.dtype("i1"), header.num_sequences, header.modes_at)
        self.tokens = MmapReader(bin_path(self.prefix))
        self._check_ends()

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the stored ids."""
        return self.header.dtype

    @property
    def num_documents(self) -> int:
        return len(self.document_indices) - 1

    def __len__(self) -> int:
        return self.header.num_sequences

    def __getitem__(self, index: int) -> np.ndarray:
        return self.get(index)

    def get(self, index: int, offset: int = 0, length: int | None = None) -> np.ndarray:
        """``length`` ids (default: to the end) of one sequence, from ``offset`` on. A read-only view of the file."""
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"{self.prefix} has {len(self)} sequences; asked for number {index}")
        available = int(self.sequence_lengths[index])
        if length is None:
            length = available - offset
        if offset < 0 or length < 0 or offset + length > available:
            raise IndexError(
                f"sequence {index} of {self.prefix} has {available} tokens; asked for {length} from {offset} on"
            )
        start = int(self._pointers[index]) + offset * self.dtype.itemsize
        if start < 0 or start + length * self.dtype.itemsize > self.tokens.size:
            raise self._damaged(f"sequence {index} lies at bytes {start} to {start + length * self.dtype.itemsize}")
        return self.tokens.read(self.dtype, length, start)

    def num_tokens(self, begin: int, end: int) -> int:
        """Tokens of the sequences ``[begin, end)``, from their offsets alone."""
        total = self.tokens.size
        first, last = (int(self._pointers[i]) if i < len(self) else total for i in (begin, end))
        return (last - first) // self.dtype.itemsize

    def validate(self) -> None:
        """Check every length, offset and document start, which takes a pass over the whole index, piece by piece."""
        start = 0
        for begin in range(0, len(self), _PIECE):
            lengths = self.sequence_lengths[begin : begin + _PIECE].astype(np.int64)
            if lengths.min() < 0:
                raise self._damaged(f"sequence {begin + int(lengths.argmin())} has length {lengths.min()}")
            expected = start + pointers(lengths, self.dtype.itemsize)
            given = self._pointers[begin : begin + _PIECE]
            wrong = np.flatnonzero(given != expected)
            if len(wrong):
                first = wrong[0]
                raise self._damaged(
                    f"sequence {begin + first} must start at byte {expected[first]}, the index says {given[first]}"
                )
            start = int(expected[-1] + lengths[-1] * self.dtype.itemsize)
        for begin in range(0, self.num_documents, _PIECE):
            falls = np.flatnonzero(np.diff(self.document_indices[begin : begin + _PIECE + 1]) < 0)
            if len(falls):
                number = begin + falls[0]
                raise self._damaged(f"document {number + 1} starts before document {number}")

    def _check_ends(self) -> None:
        """What can be checked without reading the arrays: their first and last entries against the files' sizes."""
        documents = self.document_indices
        if not len(documents) or documents[0] != 0 or documents[-1] != len(self):
            ends = f"run from {documents[0]} to {documents[-1]}" if len(documents) else "are missing"
            raise self._damaged(
                f"the document indices must run from 0 to the number of sequences, {len(self)}; they {ends}"
            )
        end = 0
        if len(self):
            end = int(self._pointers[-1]) + int(self.sequence_lengths[-1]) * self.dtype.itemsize
        if end != self.tokens.size:
            raise self._damaged(f"the index speaks of {end} bytes of tokens")

    def _damaged(self, what: str) -> DataError:
        return DataError(
            f"{idx_path(self.prefix)} and {bin_path(self.prefix)} ({self.tokens.size} bytes) must describe the "
            f"same tokens; {what}: a file is damaged or from another run, write the corpus again."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedDataset, (self.prefix,)


def pointers(lengths: np.ndarray, itemsize: int) -> np.ndarray:
    """Byte offset of each sequence: the exclusive prefix sum of ``lengths`` times ``itemsize``, in int64 throughout."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return (ends - lengths) * itemsize
