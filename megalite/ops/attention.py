"""Causal attention of packed queries, keys and values, whose matrix of scores never exists as a whole.

On the CPU by a kernel of our own, which reads and writes the packed tensors as the linear layers have them; elsewhere
by PyTorch's ``scaled_dot_product_attention``.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from megalite.ops.kernels import Kernels, find

KERNELS = ("attention_forward", "attention_backward")


def causal_attention(qkv: torch.Tensor, first: torch.Tensor | None = None) -> torch.Tensor:
    """Attention outputs [s, b, groups * query heads * d], scores scaled by 1 / sqrt(d), in float32 inside for 16 bits.

    ``qkv``: [s, b, groups, query heads + 2, d], of each group its queries, its key and its value. Query i of sequence b
    sees the keys ``first[b, i]`` (int64, at most i; 0 if there is no ``first``) to i.
    """
    sequence, batch_size, groups, members, head_dim = qkv.shape
    assert first is None or first.shape == (batch_size, sequence), f"first {tuple(first.shape)}, qkv {tuple(qkv.shape)}"
    assert sequence < 2**31, f"kernels count the keys of a sequence in 32 bits; given {sequence}"
    kernels = find(KERNELS, qkv)
    if qkv.numel() == 0:
        y = qkv[:, :, :, :-2]
    elif kernels is None:
        y = reference(qkv, first)
    else:
        y = _Attention.apply(qkv.contiguous(), None if first is None else first.contiguous(), kernels)
    return y.reshape(sequence, batch_size, groups * (members - 2) * head_dim)


class _Attention(torch.autograd.Function):
    """Keeps its input, its output and two numbers for each query."""

    @staticmethod
    def forward(ctx: Any, qkv: torch.Tensor, first: torch.Tensor | None, kernels: Kernels) -> torch.Tensor:
        ctx.kernels = kernels
        sequence, batch_size, groups, members, head_dim = qkv.shape
        y = qkv.new_empty(sequence, batch_size, groups, members - 2, head_dim)
        softmax = qkv.new_empty((batch_size, groups, members - 2, sequence, 2), dtype=torch.float32)
        kernels("attention_forward", y, softmax, qkv, first, *_sizes(qkv))
        ctx.save_for_backward(qkv, y, softmax, first)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        qkv, y, softmax, first = ctx.saved_tensors
        grad = torch.empty_like(qkv)
        ctx.kernels("attention_backward", grad, y_grad.contiguous(), y, qkv, softmax, first, *_sizes(qkv))
        return grad, None, None


def _sizes(qkv: torch.Tensor) -> tuple[int | float | torch.dtype, ...]:
    sequence, batch_size, groups, members, head_dim = qkv.shape
    return sequence, batch_size, groups, members - 2, head_dim, 1 / math.sqrt(head_dim), qkv.dtype


def reference(qkv: torch.Tensor, first: torch.Tensor | None) -> torch.Tensor:
    """:func:`causal_attention` by PyTorch's own: [s, b, heads, d]."""
    sequence, batch_size, groups, members, head_dim = qkv.shape
    query, key, value = qkv.split([members - 2, 1, 1], dim=3)
    query = query.permute(1, 2, 3, 0, 4).reshape(batch_size, -1, sequence, head_dim)
    key, value = key.squeeze(3).permute(1, 2, 0, 3), value.squeeze(3).permute(1, 2, 0, 3)
    mask = None if first is None else visible(first)
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=members > 3
    )
    return context.permute(2, 0, 1, 3)


def visible(first: torch.Tensor) -> torch.Tensor:
    """True where query i sees key j, ``first[b, i] <= j <= i``: bool [b, 1, s, s]."""
    positions = torch.arange(first.shape[1], device=first.device)
    return ((positions >= first.unsqueeze(2)) & (positions <= positions.unsqueeze(1))).unsqueeze(1)
