"""Boxes: axis-parallel pieces of a global tensor. Every resharding question is an intersection of boxes."""

import math
from dataclasses import dataclass
from typing import Sequence


@dataclass(frozen=True)
class Box:
    """The elements ``offset[d] <= index[d] < offset[d] + extent[d]`` of a tensor, in every dim d."""

    offset: tuple[int, ...]
    extent: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.offset) == len(self.extent), f"offset {self.offset} and extent {self.extent} differ in rank"

    @staticmethod
    def whole(shape: Sequence[int]) -> "Box":
        """The box of a whole tensor."""
        return Box((0,) * len(shape), tuple(shape))

    @property
    def numel(self) -> int:
        return math.prod(self.extent)

    def intersect(self, other: "Box") -> "Box | None":
        """The elements in both boxes, or None if there are none."""
        start = tuple(map(max, self.offset, other.offset))
        stop = tuple(min(a + m, b + n) for a, m, b, n in zip(self.offset, self.extent, other.offset, other.extent))
        if any(low >= high for low, high in zip(start, stop)):
            return None
        return Box(start, tuple(high - low for low, high in zip(start, stop)))

    def inside(self, outer: "Box") -> tuple[slice, ...]:
        """Index of this box in a tensor that holds exactly ``outer``."""
        return tuple(slice(a - b, a - b + n) for a, b, n in zip(self.offset, outer.offset, self.extent))

    def shift(self, by: Sequence[int]) -> "Box":
        """The same box in a frame whose origin lies at ``-by``."""
        return Box(tuple(a + b for a, b in zip(self.offset, by)), self.extent)


def flat_range_to_boxes(extent: Sequence[int], start: int, stop: int) -> list[tuple[Box, int]]:
    """The flat range ``[start, stop)`` of a C-contiguous tensor as boxes, at most ``2 n - 1`` of them in n dims.

    Returns (box, position) pairs in flat order; ``position`` is where the box's first element lies in the range, and
    the elements of each box are contiguous there. So a flat slice of a parameter can be stored and found again by its
    place in the global tensor without any communication.
    """
    assert 0 <= start <= stop <= math.prod(extent), (
        f"range [{start}, {stop}) is outside a tensor of shape {tuple(extent)}"
    )
    return [(box, box_start - start) for box, box_start in _split(tuple(extent), start, stop)]


def _split(extent: tuple[int, ...], start: int, stop: int) -> list[tuple[Box, int]]:
    if start >= stop:
        return []
    if not extent:
        return [(Box((), ()), start)]
    row = math.prod(extent[1:])
    first, last = start // row, (stop - 1) // row
    if first == last and len(extent) > 1 and stop - start < row:
        return _inner(extent, first, start, stop)
    head_stop = start if start % row == 0 else (first + 1) * row
    tail_start = stop if stop % row == 0 else last * row
    boxes = _inner(extent, first, start, head_stop) if head_stop > start else []
    if tail_start > head_stop:
        low, high = head_stop // row, tail_start // row
        boxes.append((Box((low,) + (0,) * (len(extent) - 1), (high - low,) + extent[1:]), head_stop))
    return boxes + (_inner(extent, last, tail_start, stop) if stop > tail_start else [])


def _inner(extent: tuple[int, ...], index: int, start: int, stop: int) -> list[tuple[Box, int]]:
    """The part of row ``index`` of the leading dim: boxes of the remaining dims with that dim put in front."""
    base = index * math.prod(extent[1:])
    inner = _split(extent[1:], start - base, stop - base)
    return [(Box((index,) + box.offset, (1,) + box.extent), base + at) for box, at in inner]
