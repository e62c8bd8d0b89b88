"""PyTorch's fused attention: the scores never exist as a whole."""

import torch
import torch.nn.functional as F
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext


class Core(nn.Module):
    """``scaled_dot_product_attention``. Its dropout is not ours to seed, so it does none."""

    def __init__(self, name: str, model: ModelConfig, ctx: LayerContext):
        super().__init__()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        allowed: torch.Tensor | None,
        batch: dict[str, torch.Tensor],
    ) -> torch.Tensor:
        sequence, batch_size, groups, heads_per_group, head_dim = query.shape
        query = query.permute(1, 2, 3, 0, 4).reshape(batch_size, groups * heads_per_group, sequence, head_dim)
        key, value = key.permute(1, 2, 0, 3), value.permute(1, 2, 0, 3)
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, is_causal=allowed is None, enable_gqa=heads_per_group > 1
        )
        return context.permute(2, 0, 1, 3).reshape(sequence, batch_size, -1)
