"""Softmax of scaled attention scores, with a mask or causal: of any length, in float32 inside for 16-bit scores."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from megalite.ops.kernels import find, wide

KERNELS = ("softmax_forward", "softmax_backward")


def scaled_masked_softmax(
    scores: torch.Tensor, mask: torch.Tensor, scale: float, fused: bool = True
) -> torch.Tensor:
    """softmax(scale * scores) over the keys that ``mask`` does not hide.

    ``scores``: [b, heads, queries, keys]; ``mask``: bool [b or 1, 1, queries, keys], True where a key is hidden.
    A query that sees no key gets zeros. ``scale`` is positive.
    """
    batch_size, _, queries, keys = scores.shape
    fits = mask.dim() == 4 and mask.shape[0] in (1, batch_size) and mask.shape[1:] == (1, queries, keys)
    assert fits and mask.dtype == torch.bool, (
        f"mask {mask.dtype} {tuple(mask.shape)} does not fit scores {tuple(scores.shape)}"
    )
    return _Softmax.apply(scores.contiguous(), _Form(scale, mask.contiguous(), causal=False, fused=fused))


def scaled_causal_softmax(scores: torch.Tensor, scale: float, fused: bool = True) -> torch.Tensor:
    """softmax(scale * scores) of [..., queries, keys], where query i sees the keys up to i + keys - queries.

    So the last query sees all keys. A query that sees no key gets zeros. ``scale`` is positive.
    """
    return _Softmax.apply(scores.contiguous(), _Form(scale, None, causal=True, fused=fused))


@dataclass(frozen=True)
class _Form:
    scale: float
    mask: torch.Tensor | None
    causal: bool
    fused: bool = True

    def hidden(self, scores: torch.Tensor) -> torch.Tensor:
        """True where a key is hidden, in a shape that broadcasts to the scores'."""
        if self.mask is not None:
            return self.mask
        queries, keys = scores.shape[-2:]
        return torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu_(1 + keys - queries)


class _Softmax(torch.autograd.Function):
    """Keeps its output."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, form: _Form) -> torch.Tensor:
        ctx.kernels, ctx.scale, ctx.causal = find(KERNELS, scores, fused=form.fused), form.scale, form.causal
        if ctx.kernels is None:
            y = reference_forward(scores, form)
        else:
            y, (rows, queries, keys) = torch.empty_like(scores), _sizes(scores)
            masks = 1 if form.mask is None else form.mask.shape[0]
            sizes = rows, queries, keys, max(1, rows // masks), int(form.causal), form.scale, scores.dtype
            ctx.kernels("softmax_forward", y, scores, form.mask, *sizes)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (y,) = ctx.saved_tensors
        if ctx.kernels is None:
            return reference_backward(y_grad, y, ctx.scale), None
        grad = torch.empty_like(y)
        sizes = *_sizes(y), int(ctx.causal), ctx.scale, y.dtype
        ctx.kernels("softmax_backward", grad, y_grad.contiguous(), y, *sizes)
        return grad, None


def reference_forward(scores: torch.Tensor, form: _Form) -> torch.Tensor:
    hidden = form.hidden(scores)
    values = (wide(scores) * form.scale).masked_fill_(hidden, -torch.inf)
    # A row that sees nothing has no largest value and would be 0 / 0.
    return values.softmax(dim=-1).masked_fill_(hidden, 0).to(scores.dtype)


def reference_backward(y_grad: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    weighted = wide(y_grad) * wide(y)
    return weighted.sub_(weighted.sum(-1, keepdim=True) * y).mul_(scale).to(y.dtype)


def _sizes(scores: torch.Tensor) -> tuple[int, int, int]:
    """(rows, queries, keys); no rows where there are no keys."""
    queries, keys = scores.shape[-2:]
    return (scores.numel() // keys if keys else 0), queries, keys
