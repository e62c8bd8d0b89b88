"""The mesh: how global ranks map to tensor, context, data and pipeline coordinates. Integers only, no processes.

The order is Megatron-LM's ``tp-cp-dp-pp``: tensor-parallel neighbours have consecutive ranks, pipeline stages are
farthest apart. Expert parallelism is a view of the data-parallel ranks (``ep`` divides ``dp``).
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple, Sequence

from megalite.errors import ConfigError

AXES = ("tp", "cp", "dp", "pp")
"""Axes of the mesh, fastest-varying first."""


class Coords(NamedTuple):
    """Position of a rank along each axis of :data:`AXES`."""

    tp: int
    cp: int
    dp: int
    pp: int


@dataclass(frozen=True)
class Mesh:
    """Sizes of the parallel axes. A mesh of size 1 everywhere is one process."""

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1

    @staticmethod
    def from_world(world_size: int, tp: int = 1, pp: int = 1, cp: int = 1, ep: int = 1) -> "Mesh":
        """The mesh of ``world_size`` ranks in which the data-parallel axis takes what the others leave.

        Raises :class:`ConfigError` if the world does not divide.
        """
        model = tp * pp * cp
        if world_size % model:
            fitting = ", ".join(str(model * k) for k in (1, 2, 4))
            raise ConfigError(
                f"world size ({world_size}) must be divisible by tensor ({tp}) x pipeline ({pp}) x context ({cp}) "
                f"parallel size = {model}: start {fitting}, ... processes (torchrun --nproc-per-node), or change "
                "the parallel sizes."
            )
        dp = world_size // model
        if dp % ep:
            raise ConfigError(f"data-parallel size ({dp}) must be divisible by expert_model_parallel_size ({ep}).")
        return Mesh(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep)

    @property
    def world_size(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    def size(self, axes: Sequence[str]) -> int:
        """Number of ranks in a group along ``axes``."""
        size = 1
        for axis in axes:
            size *= getattr(self, axis)
        return size

    def coords(self, rank: int) -> Coords:
        """Coordinates of a global rank."""
        assert 0 <= rank < self.world_size, f"rank {rank} is outside a world of {self.world_size}"
        position = []
        for axis in AXES:
            rank, at = divmod(rank, getattr(self, axis))
            position.append(at)
        return Coords(*position)

    def rank_of(self, tp: int = 0, cp: int = 0, dp: int = 0, pp: int = 0) -> int:
        """Global rank at the given coordinates."""
        return tp + self.tp * (cp + self.cp * (dp + self.dp * pp))

    def ranks(self, axes: Sequence[str], rank: int) -> tuple[int, ...]:
        """The ranks that differ from ``rank`` only along ``axes``, ascending; ``rank`` is one of them."""
        unknown = set(axes) - set(AXES)
        assert not unknown, f"unknown axes {sorted(unknown)}; the mesh has {AXES}"
        fixed = self.coords(rank)._asdict()
        free = [axis for axis in AXES if axis in axes]
        spans = [range(getattr(self, axis)) for axis in free]
        return tuple(sorted(self.rank_of(**{**fixed, **dict(zip(free, at))}) for at in itertools.product(*spans)))

    def groups(self, axes: Sequence[str]) -> list[tuple[int, ...]]:
        """All groups along ``axes``: a partition of the world, ordered by first rank."""
        return sorted({self.ranks(axes, rank) for rank in range(self.world_size)})
