"""Snapshots: the state of a moment in host memory, for a thread to write while training goes on."""

from dataclasses import replace
from typing import Sequence

import torch

from megalite.checkpoint.piece import Piece

_ALIGNMENT = 64


class HostMemory:
    """Host memory for snapshots, in one block: the copy into one is faster than into many. It is kept from one
    snapshot to the next, because fresh memory costs more than the copy."""

    def __init__(self) -> None:
        self._block = torch.empty(0, dtype=torch.uint8)

    def snapshot(self, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """The pieces with copies of their tensors, which hold until the next call."""
        starts = [0]
        for piece in pieces:
            starts.append(starts[-1] + -(-piece.tensor.nbytes // _ALIGNMENT) * _ALIGNMENT)
        # Only from pinned memory can a GPU copy on its own, one tensor while the next is being prepared.
        pinned = any(piece.tensor.is_cuda for piece in pieces)
        if self._block.numel() < starts[-1] or (pinned and not self._block.is_pinned()):
            self._block = torch.empty(0, dtype=torch.uint8)  # The old one goes before the new one comes.
            self._block = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=pinned)
        copies = tuple(replace(piece, tensor=self._copy(piece, start)) for piece, start in zip(pieces, starts))
        if pinned:
            torch.cuda.synchronize()
        return copies

    def _copy(self, piece: Piece, start: int) -> torch.Tensor:
        source = piece.tensor.detach()
        room = self._block[start : start + source.nbytes].view(source.dtype).view(source.shape)
        return room.copy_(source, non_blocking=True)
