"""The feed-forward sublayer, its width split over the tensor-parallel ranks."""

import torch
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.activation import make_activation
from megalite.nn.context import LayerContext
from megalite.nn.linear import ColumnParallelLinear, LinearOptions, Rebuilt, RowParallelLinear, residual_options


class MLP(nn.Module):
    """down(activation(up(x))). The gated up weight is (2, ffn, hidden), gate first, so that a shard is one box."""

    def __init__(self, name: str, model: ModelConfig, ctx: LayerContext):
        super().__init__()
        gated = model.activation == "swiglu"
        out_shape = (2, model.ffn_size) if gated else (model.ffn_size,)
        # The activation adds the bias, and sums its gradient, in the pass that it makes anyway.
        options = LinearOptions(bias=model.linear_bias, std=model.init_method_std, skip_bias_add=True)
        self.activation = make_activation(model.activation, ctx.fusions)
        self.up = ColumnParallelLinear(
            f"{name}.up", model.hidden_size, out_shape, ctx, options, shard_dim=len(out_shape) - 1
        )
        self.down = RowParallelLinear(f"{name}.down", model.ffn_size, model.hidden_size, ctx, residual_options(model))

    def forward(self, x: torch.Tensor, rebuilt: Rebuilt | None = None) -> torch.Tensor:
        """``rebuilt`` may tell how to have ``x`` again; the activation's output is always rebuilt."""
        up, bias = self.up(x, rebuilt)
        args = up, None if bias is None else bias.view(-1)
        return self.down(self.activation(*args), Rebuilt(self.activation, args))
