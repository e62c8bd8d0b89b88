"""Group: the ranks a layer talks to along one axis. It knows nothing wider than itself."""

from collections import Counter
from dataclasses import dataclass, field

import torch.distributed as dist


@dataclass
class Traffic:
    """Payload bytes handed to collectives by this rank, per (operation, axis); filled while ``enabled``."""

    enabled: bool = False
    bytes: Counter = field(default_factory=Counter)

    def add(self, operation: str, axis: str, num_bytes: int) -> None:
        if self.enabled:
            self.bytes[operation, axis] += num_bytes


@dataclass(frozen=True)
class Group:
    """Ranks along ``axis`` that share the other coordinates, and this rank's place among them."""

    axis: str
    rank: int
    """Position of this process in ``ranks``."""
    ranks: tuple[int, ...]
    """Global ranks, ascending."""
    pg: dist.ProcessGroup | None = None
    """None where the group has one member: nothing is ever sent."""
    traffic: Traffic = field(default_factory=Traffic, compare=False)

    def __post_init__(self) -> None:
        assert self.pg is not None or len(self.ranks) == 1, f"group {self.axis} of {self.ranks} needs a process group"

    @property
    def size(self) -> int:
        return len(self.ranks)

    @staticmethod
    def single(axis: str, rank: int = 0) -> "Group":
        """A group of one, for which no process group need exist."""
        return Group(axis, 0, (rank,))
