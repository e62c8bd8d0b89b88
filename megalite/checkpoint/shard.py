"""A shard: the safetensors file that one rank writes, and what it must tell rank 0 of it."""

import json
import os
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Sequence

import torch

from megalite.checkpoint.piece import Piece
from megalite.state import Box

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
}
"""The dtypes that a checkpoint can hold, with their names in safetensors."""

CHUNK_BYTES = 8 << 20
"""A tensor is written and summed in chunks of this size: small enough that the second finds them in the cache."""


@dataclass(frozen=True)
class StoredFile:
    """Size and CRC-32 of a file of a checkpoint: the one is always checked before reading, the other on request."""

    num_bytes: int
    crc32: int


@dataclass(frozen=True)
class ShardRecord:
    """What a shard holds. ``boxes`` lists (name, dtype, global shape, box) of every piece, also of the empty ones."""

    file: str
    stored: StoredFile
    boxes: tuple[tuple[str, str, tuple[int, ...], Box], ...]


def shard_name(rank: int) -> str:
    return f"shard_{rank:05d}.safetensors"


def tensor_key(name: str, box: Box) -> str:
    """The key of a box in its shard. Boxes of a tensor are disjoint, so that the offset tells them apart."""
    return f"{name}@{','.join(map(str, box.offset))}"


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``: how the index names a dtype."""
    return str(dtype).removeprefix("torch.")


def write_shard(path: Path, pieces: Sequence[Piece]) -> ShardRecord:
    """Write the pieces, each whole, to a new file and force it to disk. One tensor at a time is copied to the host.

    The same pieces always give the same bytes. Raises :class:`OSError` if the file cannot be written.
    """
    # Wide elements first: every tensor then begins at a multiple of its element size, as a memory map wants it.
    ordered = sorted(pieces, key=lambda piece: (-piece.tensor.element_size(), tensor_key(piece.name, piece.box)))
    ordered_full = [piece for piece in ordered if piece.box.numel]
    with open(path, "wb") as file, _SummingWriter(file) as writer:
        writer.write(memoryview(_header(ordered_full)))
        for piece in ordered_full:
            writer.write(_bytes_of(piece.tensor))
        file.flush()
        os.fsync(file.fileno())
        stored = writer.finish()
    boxes = tuple((piece.name, dtype_name(piece.tensor.dtype), piece.global_shape, piece.box) for piece in ordered)
    return ShardRecord(path.name, stored, boxes)


def _header(pieces: Sequence[Piece]) -> bytes:
    entries: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    position = 0
    for piece in pieces:
        assert piece.tensor.dtype in DTYPES, f"{piece.name}: a checkpoint cannot hold {piece.tensor.dtype}"
        key = tensor_key(piece.name, piece.box)
        assert key not in entries, f"two pieces of this rank claim {key}"
        stop = position + piece.box.numel * piece.tensor.element_size()
        entries[key] = {
            "dtype": DTYPES[piece.tensor.dtype],
            "shape": list(piece.box.extent),
            "data_offsets": [position, stop],
        }
        position = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy())


class _SummingWriter:
    """Writes chunks while a second thread computes the checksum of the same chunks; both leave the interpreter free."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._num_bytes = 0
        self._crc32 = 0
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> "_SummingWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()

    def write(self, data: memoryview) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            summed: Future = self._pool.submit(zlib.crc32, chunk, self._crc32)
            self._file.write(chunk)
            self._crc32 = summed.result()
            self._num_bytes += len(chunk)

    def finish(self) -> StoredFile:
        return StoredFile(self._num_bytes, self._crc32)
