"""Random tensors, random ways to cut them, and checkpoints of the result written without a manager."""

from pathlib import Path

import torch
from hypothesis import strategies as st

from megalite.checkpoint.directory import write_file
from megalite.checkpoint.index import INDEX, build_index
from megalite.checkpoint.piece import Piece, own_part
from megalite.checkpoint.shard import shard_name, write_shard
from megalite.checkpoint.store import CONFIG, META
from megalite.state import Box

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64)


def filled(shape, dtype=torch.float32, start=1):
    """A tensor of distinct small values that every dtype holds exactly."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + start) % 255).to(dtype).reshape(shape)


@st.composite
def partitions(draw, shape, num_cuts=6):
    """Disjoint boxes that cover ``shape``: the whole, cut in two at random ``num_cuts`` times. Some may be empty."""
    boxes = [Box.whole(shape)]
    for _ in range(draw(st.integers(0, num_cuts)) if shape else 0):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dim = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, box.extent[dim]))
        for begin, end in ((0, at), (at, box.extent[dim])):
            offset, extent = list(box.offset), list(box.extent)
            offset[dim] += begin
            extent[dim] = end - begin
            boxes.append(Box(tuple(offset), tuple(extent)))
    return boxes


def cut(name, tensor, boxes):
    """The pieces of a whole tensor: views of it."""
    whole = Box.whole(tensor.shape)
    return [Piece(name, tuple(tensor.shape), box, tensor[box.inside(whole)]) for box in boxes]


def empty_like(piece, dtype=None):
    """The same box with memory that holds none of its values."""
    tensor = torch.full(piece.box.extent, -1, dtype=dtype or piece.tensor.dtype)
    return Piece(piece.name, piece.global_shape, piece.box, tensor)


def write_checkpoint(directory: Path, pieces_by_rank, meta='{"iteration": 1}'):
    """A complete checkpoint, one shard per entry of ``pieces_by_rank``."""
    directory.mkdir()
    records = []
    for rank, pieces in enumerate(pieces_by_rank):
        parts = [part for piece in pieces if (part := own_part(piece))]
        records.append(write_shard(directory / shard_name(rank), parts, True))
    others = {META: write_file(directory / META, meta), CONFIG: write_file(directory / CONFIG, "seed: 1\n")}
    index = build_index(records, others)
    (directory / INDEX).write_text(index.to_json())
    return directory
