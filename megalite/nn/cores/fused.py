"""Fused attention: the scores never exist as a whole."""

import torch
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext
from megalite.ops.attention import causal_attention


class Core(nn.Module):
    """:func:`megalite.ops.attention.causal_attention`. It does no dropout."""

    def __init__(self, name: str, model: ModelConfig, ctx: LayerContext):
        super().__init__()

    def forward(
        self, qkv: torch.Tensor, first: torch.Tensor | None, batch: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        return causal_attention(qkv, first)
