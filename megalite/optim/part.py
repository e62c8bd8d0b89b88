"""Parts of the optimizer: a slice with its main parameters, and how pieces of state are named."""

from dataclasses import dataclass
from typing import Iterator

import torch

from megalite.optim.slices import FlatSlice
from megalite.state import ParamSpec

MAIN_DTYPES = (torch.float32, torch.float64)
"""Parameters of these dtypes are updated in place; those of others have a float32 main copy."""


@dataclass(frozen=True)
class StateEntry:
    """Consecutive elements of one parameter's main value or state."""

    slot: str
    """``param`` for main parameters, or a slot of the update rule."""
    spec: ParamSpec
    """The parameter's; for a factor that is not shaped like the parameter, the same name with the factor's shape."""
    start: int
    """Range in the C-contiguous tensor of ``spec.box.extent``; see :func:`megalite.state.flat_range_to_boxes`."""
    stop: int
    tensor: torch.Tensor
    """1-d view of the elements; reading into it loads them."""


@dataclass(frozen=True)
class Part:
    """A slice and its main parameters, which are the slice's own where their dtype allows it."""

    slice: FlatSlice
    main: torch.Tensor

    @staticmethod
    def of(flat_slice: FlatSlice) -> "Part":
        """A part with main parameters equal to the model's."""
        param = flat_slice.param
        return Part(flat_slice, param if param.dtype in MAIN_DTYPES else param.float())

    @property
    def in_place(self) -> bool:
        """Whether updating the main parameters updates the model's."""
        return self.main is self.slice.param

    def refresh_params(self) -> None:
        """Copy the main parameters to the model's."""
        if not self.in_place:
            self.slice.param.copy_(self.main)


def part_entries(part: Part, slot: str, tensor: torch.Tensor, owned_only: bool) -> Iterator[StateEntry]:
    """The elements of ``tensor``, which is laid out like the part's slice."""
    for segment in part.slice.owned_segments() if owned_only else part.slice.segments:
        view = tensor[segment.offset : segment.offset + segment.numel]
        yield StateEntry(slot, segment.spec, segment.start, segment.stop, view)
