"""Reductions in a narrower dtype than that of the main gradients."""

import torch

from megalite.parallel.collectives import Handle


class WideningHandle:
    """Awaits the reduction of a narrow copy of gradients, and puts the result in their place."""

    def __init__(self, reduction: Handle, narrow: torch.Tensor, wide: torch.Tensor):
        self._reduction, self._narrow, self._wide = reduction, narrow, wide

    def wait(self) -> None:
        """Return when the wide gradients are those that were reduced."""
        self._reduction.wait()
        self._wide.copy_(self._narrow)
