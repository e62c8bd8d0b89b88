"""Piece: a box of a named global tensor, and the memory of this rank that holds it. All that a checkpoint deals in."""

import zlib
from dataclasses import dataclass, replace

import torch

from megalite.state import Box, ParamSpec, flat_range_to_boxes

STATE_PREFIX = "optim."
"""What the names of optimizer state begin with; all other tensors are parameters."""

MIN_PART_BYTES = 4 << 20
"""A replicated piece is not divided among its holders into parts smaller than this."""


@dataclass(frozen=True)
class Piece:
    """A box of the tensor ``name``; ``tensor`` is a view of the memory to write it from or read it into.

    Ranks that hold the very same box are its replicas, numbered from 0: each of them writes a part of it.
    """

    name: str
    global_shape: tuple[int, ...]
    box: Box
    tensor: torch.Tensor
    """Shape ``box.extent``, any strides, any device."""
    replica: int = 0
    num_replicas: int = 1
    written: bool = True
    """False where the piece is only read: a copy, of a tied parameter say, whose replicas are counted elsewhere."""

    def __post_init__(self) -> None:
        assert tuple(self.tensor.shape) == self.box.extent, (
            f"{self.name}: a tensor of shape {tuple(self.tensor.shape)} cannot hold box {self.box}"
        )
        assert self.box.numel == 0 or Box.whole(self.global_shape).intersect(self.box) == self.box, (
            f"{self.name}: box {self.box} is outside shape {self.global_shape}"
        )
        assert 0 <= self.replica < self.num_replicas, f"{self.name}: replica {self.replica} of {self.num_replicas}"

    def rows(self, start: int, stop: int) -> "Piece":
        """Rows (dim 0) ``start`` to ``stop`` of the box, as a piece that has no other holder."""
        offset, extent = self.box.offset, self.box.extent
        box = Box((offset[0] + start,) + offset[1:], (stop - start,) + extent[1:])
        return replace(self, box=box, tensor=self.tensor[start:stop], replica=0, num_replicas=1)


def own_part(piece: Piece) -> Piece | None:
    """The part of a piece that this rank writes, or None.

    Every holder divides the rows alike, so that together they write each element once and share the bytes, and none
    of them asks another. A small piece has one writer, found from its name.
    """
    if not piece.written:
        return None
    if piece.num_replicas == 1:
        return piece
    rows = piece.box.extent[0] if piece.box.extent else 1
    num_bytes = piece.box.numel * piece.tensor.element_size()
    num_parts = max(1, min(piece.num_replicas, rows, num_bytes // MIN_PART_BYTES))
    first = zlib.crc32(f"{piece.name}@{piece.box.offset}".encode())
    part = (piece.replica - first) % piece.num_replicas
    if part >= num_parts:
        return None
    if num_parts == 1:
        return replace(piece, replica=0, num_replicas=1)
    return piece.rows(rows * part // num_parts, rows * (part + 1) // num_parts)


def param_piece(spec: ParamSpec, tensor: torch.Tensor, replica: int, num_replicas: int) -> Piece:
    """The whole local part of a parameter, without the padding that its tensor may have at the end of dim 0."""
    held = tensor[: spec.box.extent[0]] if spec.box.extent else tensor
    return Piece(spec.name, spec.global_shape, spec.box, held, replica, num_replicas, written=not spec.tie_copy)


def flat_pieces(spec: ParamSpec, flat: torch.Tensor, start: int, name: str) -> list[Piece]:
    """A flat slice of something shaped like a parameter (itself, its momentum ...), stored under ``name``.

    ``flat`` is 1-d and contiguous, and holds the elements from ``start`` on of the rank's local part of the
    parameter in C order. Elements beyond ``spec.box``, the padding, are left out.
    """
    stop = min(start + flat.numel(), spec.box.numel)
    if stop <= start:
        return []
    pieces = []
    for box, at in flat_range_to_boxes(spec.box.extent, start, stop):
        tensor = flat[at : at + box.numel].view(box.extent)
        pieces.append(Piece(name, spec.global_shape, box.shift(spec.box.offset), tensor))
    return pieces
