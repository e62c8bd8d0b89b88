"""One AdamW update of a flat tensor in one pass: our kernel, else PyTorch's fused one, plain torch elsewhere.

Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization": the decay shrinks the parameter by
lr * weight_decay and never enters the moments.
"""

from dataclasses import dataclass

import torch

from megalite.ops.kernels import Kernels, find

KERNELS = ("adamw",)

_fused = getattr(torch, "_fused_adamw_", None)


@dataclass(frozen=True)
class AdamW:
    """The numbers of one update; ``step`` counts from 1."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    step: int
    grad_factor: float
    """The gradient of the update is ``grad * grad_factor``."""


Moments = tuple[torch.Tensor, torch.Tensor]
"""Mean of gradients, mean of squared gradients."""


def adamw_(
    param: torch.Tensor, grad: torch.Tensor, moments: Moments, at: AdamW, copy: torch.Tensor | None = None
) -> None:
    """Update ``param`` and its ``moments`` in place; ``grad`` is consumed. ``copy`` receives the new ``param``.

    The four are flat, of equal length, on one device, and float32 or float64; ``copy`` may be of a 16-bit type.
    """
    kernels = find(KERNELS, param, grad, *moments)
    if kernels is not None and param.dtype == torch.float32:
        _native_update(kernels, param, grad, moments, at, copy)
        return
    if _fused is not None and param.dtype == torch.float32:
        _fused_update(param, grad, moments, at)
    else:
        reference_adamw_(param, grad, moments, at)
    if copy is not None:
        copy.copy_(param)


def _native_update(
    kernels: Kernels, param: torch.Tensor, grad: torch.Tensor, moments: Moments, at: AdamW, copy: torch.Tensor | None
) -> None:
    param_factor = 1.0 - at.lr * at.weight_decay
    root_factor = (1.0 - at.beta2**at.step) ** -0.5
    rate = at.lr / (1.0 - at.beta1**at.step)
    numbers = at.grad_factor, param_factor, at.beta1, at.beta2, at.eps, root_factor, rate
    dtype = param.dtype if copy is None else copy.dtype
    kernels("adamw", param, copy, grad, *moments, param.numel(), *numbers, dtype)


def _fused_update(param: torch.Tensor, grad: torch.Tensor, moments: Moments, at: AdamW) -> None:
    # The kernel divides by grad_scale, which it takes as a float32: good for float32 gradients, not for float64 ones.
    scale = None if at.grad_factor == 1.0 else torch.full((), 1.0 / at.grad_factor, device=param.device)
    step = torch.full((), float(at.step), device=param.device)
    _fused(
        [param], [grad], [moments[0]], [moments[1]], [], [step],
        lr=at.lr, beta1=at.beta1, beta2=at.beta2, weight_decay=at.weight_decay, eps=at.eps,
        amsgrad=False, maximize=False, grad_scale=scale, found_inf=None,
    )  # fmt: skip


def reference_adamw_(param: torch.Tensor, grad: torch.Tensor, moments: Moments, at: AdamW) -> None:
    """:func:`adamw_` in plain torch, for any floating dtype."""
    mean, mean_square = moments
    grad.mul_(at.grad_factor)
    param.mul_(1.0 - at.lr * at.weight_decay)
    mean.lerp_(grad, 1.0 - at.beta1)
    mean_square.mul_(at.beta2).addcmul_(grad, grad, value=1.0 - at.beta2)
    root = mean_square.sqrt().div_((1.0 - at.beta2**at.step) ** 0.5).add_(at.eps)
    param.addcdiv_(mean, root, value=-at.lr / (1.0 - at.beta1**at.step))
