"""Attention written out: scores, softmax, weighted sum. It can drop attention weights."""

import math

import torch
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext
from megalite.ops.attention import visible
from megalite.ops.dropout_residual import Mask, dropout_residual
from megalite.ops.softmax import scaled_causal_softmax, scaled_masked_softmax


class Core(nn.Module):
    """Explicit attention; the softmax of 16-bit scores is in float32 inside, with ``attention_softmax_in_fp32`` or not.

    The dropout mask of weight (query, key) of head h of sample k is that of the stream of (seed, name) at
    ``((k * heads + h) * s + query) * s + key``, where h is the head's number in the whole layer: no layout shows.
    """

    def __init__(self, name: str, model: ModelConfig, ctx: LayerContext):
        super().__init__()
        self.name, self.ctx = f"dropout/{name}", ctx
        self.p, self.num_heads = model.attention_dropout, model.num_attention_heads

    def forward(
        self, qkv: torch.Tensor, first: torch.Tensor | None, batch: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        sequence, batch_size, groups, members, head_dim = qkv.shape
        query, key, value = qkv.split([members - 2, 1, 1], dim=3)
        key, value = key.squeeze(3), value.squeeze(3)
        query = (query / math.sqrt(head_dim)).permute(1, 2, 3, 0, 4).reshape(batch_size, groups, -1, head_dim)
        scores = torch.matmul(query, key.permute(1, 2, 3, 0)).view(batch_size, -1, sequence, sequence)
        if first is None:
            weights = scaled_causal_softmax(scores, 1.0, self.ctx.fusions.masked_softmax)
        else:
            weights = scaled_masked_softmax(scores, ~visible(first), 1.0, self.ctx.fusions.masked_softmax)
        if self.training and self.p > 0:
            mask = self._mask(weights, batch["sample_ids"])
            weights = dropout_residual(weights, None, None, mask, fused=self.ctx.fusions.bias_dropout)
        weights = weights.view(batch_size, groups, -1, sequence)
        context = torch.matmul(weights, value.permute(1, 2, 0, 3)).view(batch_size, -1, sequence, head_dim)
        return context.permute(2, 0, 1, 3).reshape(sequence, batch_size, -1)

    def _mask(self, weights: torch.Tensor, sample_ids: torch.Tensor) -> Mask:
        _, local_heads, num_queries, _ = weights.shape
        heads = torch.arange(local_heads, device=weights.device) + self.ctx.tp.rank * local_heads
        heads = sample_ids.unsqueeze(1) * self.num_heads + heads
        rows = heads.unsqueeze(2) * num_queries + torch.arange(num_queries, device=weights.device)
        return Mask(self.ctx.seed, self.name, rows.flatten(), self.p)
