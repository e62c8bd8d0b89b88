"""Where weight gradients go: run now or deferred, added in place to the main gradient, reported exactly once.

A linear layer's backward has two parts. The input gradient is what the previous layer waits for; the weight gradient is
wanted only at the end of the step. So layers hand the second part to a :class:`WeightGradQueue` as a closure, which
hides tensor-parallel communication behind it, or lets the pipeline fill its bubbles with it (Qi et al. 2023, zero
bubble).
"""

from contextlib import contextmanager
from typing import Callable, Iterator

import torch
from torch import nn

Closure = Callable[[], None]


class WeightGradQueue:
    """Runs submitted closures at once, or collects them within :meth:`deferred`."""

    def __init__(self) -> None:
        self._collected: list[Closure] | None = None

    def submit(self, closure: Closure) -> None:
        """Run ``closure``, or keep it for later within :meth:`deferred`."""
        if self._collected is None:
            closure()
        else:
            self._collected.append(closure)

    @contextmanager
    def deferred(self) -> Iterator[list[Closure]]:
        """Collect what is submitted inside; the caller runs the closures, in order, when their time has come."""
        assert self._collected is None, "weight gradients are already being deferred"
        self._collected = collected = []
        try:
            yield collected
        finally:
            self._collected = None


def accumulate(param: nn.Parameter, add: Callable[[torch.Tensor], object]) -> None:
    """Let ``add(gradient)`` add to the parameter's gradient in place, and report that it did.

    The gradient is ``param.main_grad`` where a data-parallel strategy has set one (its dtype may be wider than the
    parameter's), else ``param.grad``. ``param.grad_hook``, if set, is called once per use of the parameter per
    micro-batch.
    """
    gradient = getattr(param, "main_grad", None)
    if gradient is None:
        if param.grad is None:
            param.grad = torch.zeros_like(param)
        gradient = param.grad
    add(gradient)
    _report(param)


def attach(param: nn.Parameter) -> None:
    """Send gradients that reach ``param`` through plain autograd the way of :func:`accumulate`."""
    param.register_post_accumulate_grad_hook(_move_to_main_grad)


def _move_to_main_grad(param: nn.Parameter) -> None:
    main_grad = getattr(param, "main_grad", None)
    # Autograd also comes by, without a gradient, after functions that have called accumulate themselves.
    if main_grad is not None and param.grad is not None:
        main_grad.add_(param.grad)
        param.grad = None
        _report(param)


def _report(param: nn.Parameter) -> None:
    hook = getattr(param, "grad_hook", None)
    if hook is not None:
        hook(param)
