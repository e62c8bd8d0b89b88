"""Snapshots: the state of a moment in host memory, for a thread to write while training goes on."""

from dataclasses import replace
from typing import Iterable

import torch

from megalite.checkpoint.piece import Piece
from megalite.checkpoint.shard import tensor_key


class HostBuffers:
    """Host memory for snapshots. It is kept from one to the next: fresh memory costs more than the copy into it."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def snapshot(self, pieces: Iterable[Piece]) -> tuple[Piece, ...]:
        """The pieces with copies of their tensors, which hold until the next call."""
        copies = tuple(replace(piece, tensor=self._copy(piece)) for piece in pieces)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return copies

    def _copy(self, piece: Piece) -> torch.Tensor:
        source, key = piece.tensor.detach(), tensor_key(piece.name, piece.box)
        buffer = self._buffers.get(key)
        if buffer is None or (buffer.shape, buffer.dtype) != (source.shape, source.dtype):
            # Only from pinned memory can a GPU copy on its own, one tensor while the next is being prepared.
            buffer = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
            self._buffers[key] = buffer
        return buffer.copy_(source, non_blocking=True)
