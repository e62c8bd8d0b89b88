"""Attention written out: scores, softmax, weighted sum. It can drop attention weights."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext
from megalite.nn.dropout import apply_mask
from megalite.nn.mask import causal_mask
from megalite.ops import philox


class Core(nn.Module):
    """Explicit attention; its softmax is in float32 under ``attention_softmax_in_fp32``.

    The dropout mask of weight (query, key) of head h of sample k is that of the stream of (seed, name) at
    ``((k * heads + h) * s + query) * s + key``, where h is the head's number in the whole layer: no layout shows.
    """

    def __init__(self, name: str, model: ModelConfig, ctx: LayerContext):
        super().__init__()
        self.name, self.ctx = f"dropout/{name}", ctx
        self.p, self.num_heads = model.attention_dropout, model.num_attention_heads
        self.softmax_dtype = torch.float32 if model.attention_softmax_in_fp32 and ctx.dtype != torch.float64 else None

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        allowed: torch.Tensor | None,
        batch: dict[str, torch.Tensor],
    ) -> torch.Tensor:
        sequence, batch_size, groups, heads_per_group, head_dim = query.shape
        query = (query / math.sqrt(head_dim)).permute(1, 2, 3, 0, 4).reshape(batch_size, groups, -1, head_dim)
        scores = torch.matmul(query, key.permute(1, 2, 3, 0)).view(batch_size, -1, sequence, sequence)
        if allowed is None:
            allowed = causal_mask(sequence, scores.device)
        scores.masked_fill_(~allowed, -torch.inf)
        weights = F.softmax(scores, dim=-1, dtype=self.softmax_dtype).to(value.dtype)
        if self.training and self.p > 0:
            weights = apply_mask(weights, self._keep(weights, batch["sample_ids"]), self.p)
        weights = weights.view(batch_size, groups, -1, sequence)
        context = torch.matmul(weights, value.permute(1, 2, 0, 3)).view(batch_size, -1, sequence, head_dim)
        return context.permute(2, 0, 1, 3).reshape(sequence, batch_size, -1)

    def _keep(self, weights: torch.Tensor, sample_ids: torch.Tensor) -> torch.Tensor:
        _, local_heads, num_queries, num_keys = weights.shape
        heads = torch.arange(local_heads, device=weights.device) + self.ctx.tp.rank * local_heads
        heads = sample_ids.unsqueeze(1) * self.num_heads + heads
        rows = heads.unsqueeze(2) * num_queries + torch.arange(num_queries, device=weights.device)
        return philox.keep_mask(self.ctx.seed, self.name, rows.flatten(), num_keys, self.p).view(weights.shape)
