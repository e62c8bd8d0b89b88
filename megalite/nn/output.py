"""The loss from the last hidden states: the output layer and its cross-entropy in one."""

from functools import partial

import torch
from torch import nn

from megalite.nn.context import LayerContext
from megalite.nn.vocabulary import VocabularyShard
from megalite.nn.wgrad import accumulate
from megalite.ops.kernels import wide
from megalite.ops.linear_cross_entropy import LossForm, Tokens, linear_cross_entropy
from megalite.parallel.collectives import all_reduce
from megalite.parallel.group import Group
from megalite.parallel.regions import copy_to_tp, gather_from_sp


def output_loss(
    hidden: torch.Tensor,
    weight: nn.Parameter,
    labels: torch.Tensor,
    mask: torch.Tensor,
    shard: VocabularyShard,
    label_smoothing: float,
    ctx: LayerContext,
) -> torch.Tensor:
    """Sum over tokens of ``mask`` times cross-entropy, equal on all ranks: a float32 (or float64) scalar.

    ``hidden``: [s_local, b, h]; ``weight``: this rank's rows of the output layer; ``labels`` and ``mask``: [s, b];
    smoothing as in :func:`megalite.nn.loss.vocab_parallel_cross_entropy`. The logits never exist as a whole. The
    weight's gradient is accumulated in the backward pass itself, never deferred.
    Raises :class:`megalite.errors.DataError` for a label outside the vocabulary.
    """
    shard.check(labels, "labels")
    whole = gather_from_sp(hidden, ctx.tp) if ctx.sequence_parallel else copy_to_tp(hidden, ctx.tp)
    rows, elsewhere = shard.local(labels)
    tokens = Tokens(
        hidden=whole.flatten(0, 1),
        targets=rows.masked_fill_(elsewhere, -1).flatten(),
        weights=mask.flatten().to(wide(hidden[:0]).dtype),
    )
    form = LossForm(
        shard.vocab_size, shard.num_real, label_smoothing, ctx.fusions.cross_entropy_loss, partial(_reduce, ctx.tp)
    )
    return linear_cross_entropy(tokens, weight, form, partial(accumulate, weight))


def _reduce(group: Group, tensor: torch.Tensor, op: str) -> torch.Tensor:
    return all_reduce(tensor, group, op)
