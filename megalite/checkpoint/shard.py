"""A shard: the safetensors file that one rank writes, and what it must tell rank 0 of it."""

import errno
import json
import os
import zlib
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Sequence

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

STATE_SHARD_PREFIX = "optim_"

CHUNK_BYTES = 4 << 20
"""Files are written and summed in chunks of this size: small enough that the second finds them in the cache."""


@dataclass(frozen=True)
class StoredFile:
    """Size of a file of a checkpoint, and its CRC-32 if one was computed."""

    num_bytes: int
    crc32: int | None


@dataclass(frozen=True)
class ShardRecord:
    """What a shard holds. ``boxes`` lists (name, dtype, global shape, box) of every piece, also of the empty ones."""

    file: str
    stored: StoredFile
    boxes: tuple[tuple[str, str, tuple[int, ...], Box], ...]


def shard_name(rank: int) -> str:
    """Name of the file that a rank writes its parameters to."""
    return f"shard_{rank:05d}.safetensors"


def state_shard_name(rank: int) -> str:
    """Name of the file that a rank writes its optimizer state to, so that this can be deleted by itself."""
    return f"{STATE_SHARD_PREFIX}{rank:05d}.safetensors"


def tensor_key(name: str, box: Box) -> str:
    """The key of a box in its shard. Boxes of a tensor are disjoint, so that the offset tells them apart."""
    return f"{name}@{','.join(map(str, box.offset))}"


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``: how the index names a dtype."""
    return str(dtype).removeprefix("torch.")


def write_shard(path: Path, pieces: Sequence[Piece], checksum: bool) -> ShardRecord:
    """Write the pieces, each whole, to a new file and force it to disk. One tensor at a time is copied to the host.

    The same pieces always give the same bytes. Raises :class:`OSError` if the file cannot be written.
    """
    # Wide elements first: every tensor then begins at a multiple of its element size, as a memory map wants it.
    ordered = sorted(pieces, key=lambda piece: (-piece.tensor.element_size(), tensor_key(piece.name, piece.box)))
    stored_pieces = [piece for piece in ordered if piece.box.numel]
    header = _header(stored_pieces)
    num_bytes = len(header) + sum(_num_bytes(piece) for piece in stored_pieces)
    with open(path, "wb", buffering=0) as file:
        _reserve(file, num_bytes)
        crc32 = _write(file, memoryview(header), 0 if checksum else None)
        for piece in stored_pieces:
            crc32 = _write(file, _bytes_of(piece.tensor), crc32)
        os.fsync(file.fileno())
    boxes = tuple((piece.name, dtype_name(piece.tensor.dtype), piece.global_shape, piece.box) for piece in ordered)
    return ShardRecord(path.name, StoredFile(num_bytes, crc32), boxes)


def _write(file: FileIO, data: memoryview, crc32: int | None) -> int | None:
    """Write all of ``data``; returns the checksum of the file so far, if one is wanted."""
    while data:
        chunk = data[:CHUNK_BYTES]
        chunk = chunk[: file.write(chunk)]
        if crc32 is not None:
            crc32 = zlib.crc32(chunk, crc32)
        data = data[len(chunk) :]
    return crc32


def _reserve(file: FileIO, num_bytes: int) -> None:
    """Claim room on disk: a full one is noticed before anything is written, and writing is faster."""
    try:
        os.posix_fallocate(file.fileno(), 0, num_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # What file systems say that cannot do this.
            raise


def _num_bytes(piece: Piece) -> int:
    return piece.box.numel * piece.tensor.element_size()


def _header(pieces: Sequence[Piece]) -> bytes:
    entries: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    position = 0
    for piece in pieces:
        assert piece.tensor.dtype in DTYPES, f"{piece.name}: a checkpoint cannot hold {piece.tensor.dtype}"
        key = tensor_key(piece.name, piece.box)
        assert key not in entries, f"two pieces of this rank claim {key}"
        stop = position + _num_bytes(piece)
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
