"""ParamSpec: what a parameter says of itself. Nothing else needs to know a model to handle its state."""

from dataclasses import dataclass
from typing import Literal

from megalite.state.box import Box


@dataclass(frozen=True)
class Init:
    """How the initial value of each element is found: a function of the element's global index alone."""

    kind: Literal["normal", "zeros", "ones"]
    std: float = 0.0


@dataclass(frozen=True)
class ParamSpec:
    """Place of a rank's parameter in the global model.

    The local tensor may have more rows (dim 0) than ``box.extent``: padding of the vocabulary, at the end, always zero.
    """

    name: str
    """Canonical name, equal on every rank and at every layout, e.g. ``layers.3.mlp.up.weight``."""
    global_shape: tuple[int, ...]
    """Shape of the whole parameter, without padding."""
    box: Box
    """The part of it that this rank holds."""
    init: Init
    decay: bool
    """Whether weight decay applies (weights of two and more dims; not norms and biases)."""
    reduce_axes: tuple[str, ...] = ()
    """Axes besides dp over which its gradient is still a partial sum, e.g. ``("tp",)`` under sequence parallelism."""
    tie_copy: bool = False
    """A second holder of a tied parameter: kept equal to the first, not counted in norms, not stored."""

    def __post_init__(self) -> None:
        whole = Box.whole(self.global_shape)
        assert self.box.numel == 0 or whole.intersect(self.box) == self.box, (
            f"{self.name}: box {self.box} is outside shape {self.global_shape}"
        )

    @property
    def sharded(self) -> bool:
        """Whether other tensor-parallel ranks hold other parts of it."""
        return self.box != Box.whole(self.global_shape)
