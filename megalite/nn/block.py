"""The pre-norm transformer layer."""

from torch import nn

from megalite.config import ModelConfig
from megalite.nn.attention import Attention, Positions
from megalite.nn.context import LayerContext
from megalite.nn.dropout import Dropout
from megalite.nn.linear import Rebuilt
from megalite.nn.mlp import MLP
from megalite.nn.norm import make_norm
from megalite.nn.unit import Tensors


class TransformerLayer(nn.Module):
    """x + dropout(attention(norm1(x))), then x + dropout(mlp(norm2(x))), on the carry's ``hidden`` [s_local, b, h].

    ``hidden`` keeps its dtype, which may be wider than the parameters'. The outputs of norms and of the activation are
    not kept for the backward pass.
    """

    def __init__(
        self, name: str, model: ModelConfig, ctx: LayerContext, positions: Positions, recompute_core: bool = False
    ):
        super().__init__()
        self.norm1 = make_norm(f"{name}.norm1", model.hidden_size, model, ctx, ctx.sequence_axes)
        self.attention = Attention(f"{name}.attention", model, ctx, positions, recompute_core)
        self.attention_dropout = Dropout(f"{name}.attention", model.hidden_dropout, ctx)
        self.norm2 = make_norm(f"{name}.norm2", model.hidden_size, model, ctx, ctx.sequence_axes)
        self.mlp = MLP(f"{name}.mlp", model, ctx)
        self.mlp_dropout = Dropout(f"{name}.mlp", model.hidden_dropout, ctx)

    def forward(self, carry: Tensors, batch: Tensors) -> Tensors:
        hidden = carry["hidden"]
        attended = self.attention(self.norm1(hidden), batch, Rebuilt(self.norm1, (hidden,)))
        if self.attention_dropout.active:
            hidden = self.attention_dropout.add(attended, hidden, batch)
            normed = self.norm2(hidden)
        else:
            normed, hidden = self.norm2.of_sum(attended, hidden)
        mlp = self.mlp(normed, Rebuilt(self.norm2, (hidden,)))
        # The sublayer's output is a fresh tensor that no backward needs: the residual may be added into it.
        return {**carry, "hidden": self.mlp_dropout.add(mlp, hidden, batch)}
