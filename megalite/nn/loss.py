"""Cross-entropy over a vocabulary that is split over the tensor-parallel ranks, in the memory of the logits."""

from typing import Any

import torch

from megalite.errors import ConfigError
from megalite.nn.vocabulary import VocabularyShard
from megalite.parallel.collectives import all_reduce
from megalite.parallel.group import Group


def vocab_parallel_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, shard: VocabularyShard, group: Group, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Loss of each token, equal on all ranks of the group: float32 [s, b], float64 for float64 logits.

    ``logits`` [s, b, shard.num_rows] holds this rank's columns, padding included; ``labels`` [s, b] are global ids.
    With smoothing e the target is ``(1 - e) onehot + e / vocab_size`` (Szegedy et al. 2016, section 7, as in PyTorch;
    Megatron-LM's loss function spreads e over the other V - 1 tokens instead: its e is ours times (V - 1) / V).
    Padding columns get neither probability nor gradient.

    The logits are consumed: float32 and float64 ones are overwritten, first by probabilities, then by their gradient,
    so that no second tensor of their size exists. Two reductions: the maximum, and three sums at once.

    Raises :class:`ConfigError` for logits of another width, such as gathered ones, and
    :class:`megalite.errors.DataError` for a label outside the vocabulary.
    """
    if logits.shape[-1] != shard.num_rows:
        raise ConfigError(
            f"vocab_parallel_cross_entropy needs this rank's {shard.num_rows} of the vocabulary's columns; "
            f"given {logits.shape[-1]}: pass the logits of each of the {group.size} tensor-parallel ranks as they are, "
            "not gathered (gather_output=False)."
        )
    assert logits.shape[:-1] == labels.shape, (
        f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} do not match"
    )
    shard.check(labels, "labels")
    return _CrossEntropy.apply(logits, labels, shard, group, label_smoothing)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        labels: torch.Tensor,
        shard: VocabularyShard,
        group: Group,
        label_smoothing: float,
    ) -> torch.Tensor:
        ctx.dtype, ctx.shard, ctx.label_smoothing = logits.dtype, shard, label_smoothing
        scores = (logits if logits.dtype == torch.float64 else logits.float()).detach()
        scores[..., shard.num_real :] = -torch.inf
        peak = all_reduce(scores.amax(-1), group, "max")
        scores.sub_(peak.unsqueeze(-1))
        rows, elsewhere = shard.local(labels)
        target = scores.gather(-1, rows.unsqueeze(-1)).squeeze(-1).masked_fill_(elsewhere, 0)
        uniform = scores[..., : shard.num_real].sum(-1) if label_smoothing else torch.zeros_like(target)
        total = scores.exp_().sum(-1)
        total, target, uniform = all_reduce(torch.stack((total, target, uniform)), group)
        ctx.save_for_backward(scores, total, rows, elsewhere)
        return total.log() - (1 - label_smoothing) * target - (label_smoothing / shard.vocab_size) * uniform

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        scores, total, rows, elsewhere = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        scores.mul_(grad / total.unsqueeze(-1))
        on_target = ((ctx.label_smoothing - 1) * grad).masked_fill(elsewhere.unsqueeze(-1), 0)
        scores.scatter_add_(-1, rows.unsqueeze(-1), on_target)
        if ctx.label_smoothing:
            scores[..., : ctx.shard.num_real].sub_(grad * (ctx.label_smoothing / ctx.shard.vocab_size))
        return scores.to(ctx.dtype), None, None, None, None
