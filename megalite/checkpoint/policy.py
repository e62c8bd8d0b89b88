"""Which checkpoints stay."""

from dataclasses import dataclass
from typing import Sequence


@dataclass(frozen=True)
class Retention:
    """How many checkpoints to keep. With neither number given, all."""

    keep_last: int | None = None
    """The newest ones, that many; 1 if only ``interval`` is given."""
    interval: int | None = None
    """Iterations divisible by it stay besides."""
    weights_of_older: bool = False
    """Whether of those that are not kept the parameters stay."""

    def doomed(self, iterations: Sequence[int], newest: int) -> list[int]:
        """Those of ``iterations`` not to keep now that the checkpoint of iteration ``newest`` is published.

        Iterations later than ``newest`` are of a run that was taken back to an earlier step since: they neither
        count nor go.
        """
        if self.keep_last is None and self.interval is None:
            return []
        until_now = sorted(iteration for iteration in iterations if iteration <= newest)
        return [i for i in until_now[: -(self.keep_last or 1)] if not (self.interval and i % self.interval == 0)]
