"""Causal self-attention with heads split over the tensor-parallel ranks."""

from dataclasses import dataclass, field

import torch
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext
from megalite.nn.cores import fused, unfused
from megalite.nn.linear import ColumnParallelLinear, LinearOptions, Rebuilt, RowParallelLinear, residual_options
from megalite.nn.mask import DocumentStarts
from megalite.nn.norm import make_norm
from megalite.nn.recompute import checkpointed
from megalite.nn.rotary import Rotary


@dataclass(frozen=True)
class Positions:
    """What says where tokens are and what they may see, shared by all layers of a rank."""

    rotary: Rotary | None = None
    """None where positions do not enter attention."""
    documents: DocumentStarts = field(default_factory=DocumentStarts)


class Attention(nn.Module):
    """From hidden states [s_local, b, h] to their attention output of the same shape.

    The qkv weight is (groups, query heads per group + 2, head dim, hidden): each query group's queries, its key and its
    value together, so that a shard of whole groups is one box.
    """

    def __init__(
        self, name: str, model: ModelConfig, ctx: LayerContext, positions: Positions, recompute_core: bool = False
    ):
        super().__init__()
        self.num_groups = model.query_groups // ctx.tp.size
        self.heads_per_group, self.head_dim = model.num_attention_heads // model.query_groups, model.head_dim
        self.rotary, self.documents, self.recompute_core = positions.rotary, positions.documents, recompute_core
        out_shape = (model.query_groups, self.heads_per_group + 2, self.head_dim)
        self.qkv = ColumnParallelLinear(
            f"{name}.qkv",
            model.hidden_size,
            out_shape,
            ctx,
            LinearOptions(bias=model.qkv_bias, std=model.init_method_std),
        )
        self.out = RowParallelLinear(
            f"{name}.out", model.num_attention_heads * self.head_dim, model.hidden_size, ctx, residual_options(model)
        )
        self.fusions = ctx.fusions
        self.q_norm = self.k_norm = None
        if model.qk_layernorm:
            axes = ("tp",) if ctx.tp.size > 1 else ()  # each rank has the gradient of its own heads
            self.q_norm = make_norm(f"{name}.q_norm", self.head_dim, model, ctx, axes)
            self.k_norm = make_norm(f"{name}.k_norm", self.head_dim, model, ctx, axes)
        self.fused = None if model.attention_backend == "unfused" else fused.Core(f"{name}.core", model, ctx)
        self.unfused = None if model.attention_backend == "fused" else unfused.Core(f"{name}.core", model, ctx)

    def forward(
        self, x: torch.Tensor, batch: dict[str, torch.Tensor], rebuilt: Rebuilt | None = None
    ) -> torch.Tensor:
        """``rebuilt`` may tell how to have ``x`` again."""
        core, args = self._core(), (self._project(x, batch, rebuilt), self.documents.of(batch), batch)
        return self.out(checkpointed(core, *args) if self.recompute_core else core(*args))

    def _project(self, x: torch.Tensor, batch: dict[str, torch.Tensor], rebuilt: Rebuilt | None) -> torch.Tensor:
        """[s, b, groups, heads per group + 2, d]: of each group its queries, its key, both normed and rotated, and its
        value."""
        qkv = self.qkv(x, rebuilt)
        shape = (*qkv.shape[:2], self.num_groups, self.heads_per_group + 2, self.head_dim)
        if self.q_norm is not None:
            query, key, value = qkv.view(shape).split([self.heads_per_group, 1, 1], dim=3)
            qkv = torch.cat((self.q_norm(query), self.k_norm(key), value), dim=3)
        if self.rotary is not None:
            positions, heads = batch["position_ids"], self.heads_per_group + 1
            qkv = self.rotary.rotate_(qkv, shape, heads, positions, self.fusions.rope)
        return qkv.view(shape)

    def _core(self) -> nn.Module:
        """The fused core, unless attention weights are to be dropped or the model asks for the other one."""
        if self.fused is None or (self.unfused is not None and self.training and self.unfused.p > 0):
            return self.unfused
        return self.fused
