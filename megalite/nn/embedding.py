"""Word embedding, split over the tensor-parallel ranks by rows, and learned positions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from megalite.nn.context import LayerContext
from megalite.nn.parameter import make_parameter
from megalite.nn.vocabulary import VocabularyShard
from megalite.nn.wgrad import accumulate
from megalite.parallel.regions import reduce_from_tp, reduce_scatter_to_sp, scatter_to_sp
from megalite.state import Box, Init, ParamSpec


def vocabulary_parameter(
    name: str, hidden_size: int, std: float, shard: VocabularyShard, ctx: LayerContext, tie_copy: bool = False
) -> nn.Parameter:
    """A [vocabulary, hidden] matrix of which this rank holds ``shard``; its padding rows are zero."""
    box = Box((min(shard.start, shard.vocab_size), 0), (shard.num_real, hidden_size))
    spec = ParamSpec(name, (shard.vocab_size, hidden_size), box, Init("normal", std), decay=True, tie_copy=tie_copy)
    return make_parameter(spec, ctx, local_shape=(shard.num_rows, hidden_size))


class VocabParallelEmbedding(nn.Module):
    """Rows of the word embedding for ids [b, s], as [s, b, hidden] (s / tp under sequence parallelism).

    Each rank looks up the ids it holds; the sum over ranks is the embedding. Raises
    :class:`megalite.errors.DataError` for an id outside the vocabulary.
    """

    def __init__(self, name: str, hidden_size: int, std: float, shard: VocabularyShard, ctx: LayerContext):
        super().__init__()
        self.shard, self.ctx = shard, ctx
        self.weight = vocabulary_parameter(f"{name}.weight", hidden_size, std, shard, ctx)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.shard.check(ids, "token ids")
        rows, elsewhere = self.shard.local(ids.t())
        embedded = _Lookup.apply(self.weight, rows, self.ctx)
        tp = self.ctx.tp
        if tp.size == 1:
            return embedded
        embedded = embedded.masked_fill(elsewhere.unsqueeze(-1), 0)
        return reduce_scatter_to_sp(embedded, tp) if self.ctx.sequence_parallel else reduce_from_tp(embedded, tp)


class PositionEmbedding(nn.Module):
    """A learned vector per position: [s, b, hidden] for position ids [b, s]. Whole on every rank.

    Under sequence parallelism each rank looks up its part of the sequence only.
    """

    def __init__(self, name: str, num_positions: int, hidden_size: int, std: float, ctx: LayerContext):
        super().__init__()
        shape = (num_positions, hidden_size)
        spec = ParamSpec(
            f"{name}.weight", shape, Box.whole(shape), Init("normal", std), decay=True, reduce_axes=ctx.sequence_axes
        )
        self.ctx = ctx
        self.weight = make_parameter(spec, ctx)

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        positions = position_ids.t()
        if self.ctx.sequence_axes:
            positions = scatter_to_sp(positions, self.ctx.tp)
        return _Lookup.apply(self.weight, positions, self.ctx)


class _Lookup(torch.autograd.Function):
    """Rows of a local matrix, whose gradient is added in place and never exists as a dense tensor."""

    @staticmethod
    def forward(ctx: Any, weight: nn.Parameter, rows: torch.Tensor, layer: LayerContext) -> torch.Tensor:
        ctx.save_for_backward(rows)
        ctx.weight, ctx.layer = weight, layer
        return F.embedding(rows, weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        (rows,) = ctx.saved_tensors
        weight = ctx.weight
        ctx.layer.wgrad.submit(lambda: accumulate(weight, lambda total: _add_rows(total, rows, grad)))
        return None, None, None


def _add_rows(total: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    rows, values = rows.flatten(), values.flatten(0, -2).to(total.dtype)
    if total.device.type == "cpu":
        total.index_add_(0, rows, values)
    else:  # On a GPU index_add_ adds in no fixed order; index_put_ sorts first, so that a run repeats to the bit.
        total.index_put_((rows,), values, accumulate=True)
