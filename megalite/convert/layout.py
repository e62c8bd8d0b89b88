"""Layout: where the elements of canonical tensors lie in the tensors of another format. Data, read both ways."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Callable, Hashable, Mapping, Sequence

import torch

from megalite.state import Box

Key = Hashable
"""What names a tensor of the other format: its name, or its file and its name."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """``box`` of the canonical tensor ``name`` holds the same elements as ``foreign_box`` of the tensor ``key``.

    The foreign elements, seen as shape ``split`` with its dims in the order ``order``, have the shape of ``box``.
    """

    name: str
    box: Box
    key: Key
    foreign_box: Box
    split: Shape
    order: Shape

    def __post_init__(self) -> None:
        shape = tuple(self.split[dim] for dim in self.order)
        assert shape == self.box.extent, f"{self.name}: {self.key} gives shape {shape} for {self.box}"
        assert self.foreign_box.numel == self.box.numel, f"{self.name}: {self.foreign_box} of {self.key} for {self.box}"

    def to_canonical(self, foreign: torch.Tensor) -> torch.Tensor:
        """The elements of ``box``, from the whole foreign tensor; a view where it can be."""
        elements = foreign[self.foreign_box.inside(Box.whole(foreign.shape))]
        return elements.reshape(self.split).permute(self.order)

    def to_foreign(self, elements: torch.Tensor) -> torch.Tensor:
        """The elements of ``foreign_box``, from those of ``box``."""
        back = [self.order.index(dim) for dim in range(len(self.order))]
        return elements.permute(back).reshape(self.foreign_box.extent)


@dataclass
class Layout:
    """All parts of a model, with the shapes on both sides.

    The same canonical elements may lie in several foreign tensors (a replica on each rank): the first is read, all are
    written.
    """

    shapes: Mapping[str, Shape]
    """Shapes of the canonical tensors."""
    foreign_shapes: dict[Key, Shape] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    _by_name: dict[str, list[Part]] = field(default_factory=lambda: defaultdict(list))
    _by_key: dict[Key, list[Part]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self,
        name: str,
        key: Key,
        foreign_shape: Shape | None = None,
        *,
        box: Box | None = None,
        foreign_box: Box | None = None,
        split: Shape | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        """Add a part; what is left out is the whole tensor, equal in shape on both sides."""
        box = Box.whole(self.shapes[name]) if box is None else box
        split = box.extent if split is None else split
        foreign_shape = split if foreign_shape is None else foreign_shape
        order = tuple(range(len(split))) if order is None else tuple(order)
        foreign_box = Box.whole(foreign_shape) if foreign_box is None else foreign_box
        part = Part(name, box, key, foreign_box, split, order)
        assert self.foreign_shapes.setdefault(key, foreign_shape) == foreign_shape, f"{key}: two shapes"
        self.parts.append(part)
        self._by_name[name].append(part)
        self._by_key[key].append(part)

    def sources(self, name: str) -> list[Part]:
        """The parts that make up a canonical tensor, one for each of its boxes."""
        first: dict[Box, Part] = {}
        for part in self._by_name[name]:
            first.setdefault(part.box, part)
        return list(first.values())

    def fill(self, name: str, box: Box, out: torch.Tensor, tensor_of: Callable[[Key], torch.Tensor]) -> None:
        """Copy a box of a canonical tensor into ``out``, from the foreign tensors that ``tensor_of`` gives."""
        for part in self.sources(name):
            overlap = part.box.intersect(box)
            if overlap is not None:
                elements = part.to_canonical(tensor_of(part.key))
                out[overlap.inside(box)].copy_(elements[overlap.inside(part.box)])

    def names_in(self, key: Key) -> list[str]:
        """The canonical tensors of which a foreign one holds elements."""
        return [part.name for part in self._by_key[key]]

    def make_foreign(self, key: Key, read: Callable[[str], torch.Tensor]) -> torch.Tensor:
        """A foreign tensor, from the canonical ones that ``read`` returns. Elements in no part are zero."""
        shape, parts = self.foreign_shapes[key], self._by_key[key]
        foreign: torch.Tensor | None = None
        for part in parts:
            tensor = read(part.name)
            elements = part.to_foreign(tensor[part.box.inside(Box.whole(tensor.shape))])
            if part.foreign_box.extent == shape:
                return elements.clone(memory_format=torch.contiguous_format)  # Not a view that would be saved whole.
            if foreign is None:
                foreign = torch.zeros(shape, dtype=tensor.dtype)
            foreign[part.foreign_box.inside(Box.whole(shape))] = elements
        assert foreign is not None, f"nothing is in {key}"
        return foreign
