"""Backward: the backward pass of some outputs, to be run later, from gradients that are given then."""

from typing import Any

import torch

from megalite.parallel.p2p import Tensors


class Backward:
    """Keeps the place of ``outputs`` in the autograd graph and not the tensors: one that has been sent takes no memory.

    PyTorch's own way to begin with given gradients imports its symbolic shapes and with them sympy, which takes half
    a second and 45 MiB of every process. Beginning with a scalar does not, so there is one above the outputs here.
    """

    def __init__(self, outputs: Tensors):
        self._names = tuple(outputs)
        self._grads: list[torch.Tensor] = []
        self._root = _Root.apply(self._grads, *outputs.values())

    def run(self, grads: Tensors) -> None:
        """Run it, once, from the gradients of the outputs, by name; ``grads`` is emptied, so that they can be freed."""
        self._grads.extend(grads.pop(name) for name in self._names)
        torch.autograd.backward(self._root)


class _Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grads: list[torch.Tensor], *outputs: torch.Tensor) -> torch.Tensor:
        ctx.grads = grads
        return outputs[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple:
        grads = tuple(ctx.grads)
        ctx.grads.clear()
        return None, *grads
