"""FlatSlice: the part of a data-parallel bucket that a rank's optimizer updates, and whose elements it holds."""

from dataclasses import dataclass

import torch

from megalite.state import ParamSpec


@dataclass(frozen=True)
class Segment:
    """Consecutive elements of one parameter, and where they lie in a flat tensor."""

    spec: ParamSpec
    start: int
    """First element, counted in the C-contiguous tensor of ``spec.box.extent``."""
    stop: int
    offset: int
    """Position of element ``start`` in the flat tensor."""

    @property
    def numel(self) -> int:
        return self.stop - self.start

    def within(self, start: int, stop: int) -> "Segment | None":
        """The part that lies in positions ``[start, stop)`` of the flat tensor (offsets unchanged), or None."""
        low, high = max(self.offset, start), min(self.offset + self.numel, stop)
        if low >= high:
            return None
        return Segment(self.spec, self.start + low - self.offset, self.start + high - self.offset, low)


@dataclass(frozen=True)
class FlatSlice:
    """A flat run of parameters and main gradients, equal in length.

    Elements in no segment are padding: zero in both, never stored and never counted.
    """

    param: torch.Tensor
    """1-d view of the parameters, in the model's dtype."""
    grad: torch.Tensor
    """1-d view of the main gradients: float64 for float64 parameters, else float32. Sums over tokens, not means."""
    decay: bool
    """Whether weight decay applies."""
    specs: tuple[ParamSpec, ...]
    """The parameters of the bucket, equal on all data-parallel ranks, whether or not the slice has elements of them."""
    segments: tuple[Segment, ...]
    """What the elements are, by ascending offset."""
    share: tuple[int, int]
    """The range that this rank answers for among the tensor- and data-parallel ranks of its pipeline stage: over these,
    shares cover each element of each parameter once, replicas included."""

    @property
    def owned(self) -> tuple[int, int]:
        """The range that this rank alone answers for: the share, unless another stage has the first tied copy."""
        return (0, 0) if any(spec.tie_copy for spec in self.specs) else self.share

    def owned_segments(self) -> list[Segment]:
        """The segments, cut to the owned range."""
        parts = (segment.within(*self.owned) for segment in self.segments)
        return [part for part in parts if part is not None]
