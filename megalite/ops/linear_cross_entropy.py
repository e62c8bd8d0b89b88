"""The output layer and its cross-entropy in one, some tokens at a time, so that the logits never exist as a whole.

The vocabulary may be split over ranks; each chunk of tokens then needs two small reductions. The gradient needs the
logits once more. Either it is computed in the forward pass, while they are at hand, and kept until the backward pass
scales it; or two numbers a token are kept, and the logits are computed again. See :func:`gradient_is_early`.
"""

from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch
from torch.autograd.function import once_differentiable

from megalite.ops import matmul
from megalite.ops.kernels import find, wide

KERNELS = ("cross_entropy_peaks", "cross_entropy_sums", "cross_entropy_gradient")

Accumulate = Callable[[Callable[[torch.Tensor], object]], None]
"""Calls its argument at once, with the tensor to which that adds the weight's gradient in place."""

_CHUNK = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Logits that exist at once: on the CPU about what its cache holds, on a GPU what keeps it busy."""
_MIN_TOKENS = 256
"""Tokens in a chunk below which the matrix products would be slow."""


@dataclass(frozen=True)
class LossForm:
    """What the loss depends on besides the logits."""

    vocab_size: int
    """Of the whole vocabulary, without padding."""
    num_real: int
    """The first so many rows of this rank's weight are tokens; the others are padding, and get no probability."""
    label_smoothing: float = 0.0
    """e: the target is (1 - e) onehot + e / vocab_size."""
    fused: bool = True
    """Use kernels for what follows the products, where there are any."""
    reduce: Callable[[torch.Tensor, str], torch.Tensor] = lambda tensor, op: tensor
    """Reduces a tensor in place (``op``: sum or max) over the ranks that share the vocabulary, and returns it."""


@dataclass(frozen=True)
class Tokens:
    """Some tokens and their targets."""

    hidden: torch.Tensor
    """[n, h]."""
    targets: torch.Tensor
    """int64 [n]: this rank's row of the weight, or -1 where another rank holds the target."""
    weights: torch.Tensor
    """[n], float32 (float64 for float64 hidden states): a factor of each token's loss, such as the loss mask."""

    def chunks(self, num_rows: int) -> Iterator[tuple[slice, "Tokens"]]:
        """Consecutive parts, each with its place, whose logits over ``num_rows`` rows may exist at once."""
        size = max(_MIN_TOKENS, _CHUNK[self.hidden.device.type] // max(num_rows, 1))
        for start in range(0, len(self.hidden), size):
            at = slice(start, start + size)
            yield at, Tokens(self.hidden[at], self.targets[at], self.weights[at])


def linear_cross_entropy(tokens: Tokens, weight: torch.Tensor, form: LossForm, accumulate: Accumulate) -> torch.Tensor:
    """Sum over ``tokens`` of weight times cross-entropy of the logits ``hidden @ weight.T``, equal on all ranks.

    ``weight``: [rows, h], this rank's rows of the vocabulary, whose gradient goes to ``accumulate`` in the backward
    pass. The gradient of the hidden states is this rank's part of a sum over the ranks; there is none by the tokens'
    weights. The result is a scalar in their dtype.
    """
    hidden, size = tokens.hidden, len(tokens.hidden)
    assert tokens.targets.shape == tokens.weights.shape == (size,), f"targets and weights must be of {size} tokens"
    assert hidden.shape[1:] == weight.shape[1:], f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} differ"
    plain = Tokens(hidden.detach().contiguous(), tokens.targets.contiguous(), tokens.weights.detach().contiguous())
    return _LinearCrossEntropy.apply(hidden, weight, plain, form, accumulate)


def gradient_is_early(hidden: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether gradients are computed in the forward pass, which saves one product of four and keeps a weight gradient.

    That is done where the latter is at most half the size of all logits, and where no loss scale is to keep small
    gradients from vanishing (float16).
    """
    return hidden.dtype != torch.float16 and 2 * hidden.shape[1] <= hidden.shape[0]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, tokens: Tokens, form: LossForm, accumulate: Accumulate
    ) -> torch.Tensor:
        differentiated = any(ctx.needs_input_grad)
        ctx.weight, ctx.form, ctx.accumulate = weight, form, accumulate
        ctx.early = differentiated and gradient_is_early(hidden, weight)
        if ctx.early:
            loss, *gradients = _loss_and_gradients(tokens, weight, form)
            ctx.save_for_backward(*gradients)
            return loss
        loss, statistics_of_tokens = tokens.weights.new_zeros(()), []
        for _, chunk in tokens.chunks(len(weight)):
            peak, total, losses = statistics(matmul.linear(chunk.hidden, weight), chunk.targets, form)
            loss += torch.dot(losses, chunk.weights)
            statistics_of_tokens += [peak, total]
        if differentiated:
            ctx.save_for_backward(tokens.hidden, tokens.targets, tokens.weights, *statistics_of_tokens)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_grad: torch.Tensor) -> tuple:
        if ctx.early:
            hidden_grad, early_weight_grad = ctx.saved_tensors
            ctx.accumulate(lambda total: total.addcmul_(early_weight_grad, loss_grad))
            return hidden_grad * loss_grad.to(hidden_grad.dtype), None, None, None, None
        hidden, targets, weights, *statistics_of_tokens = ctx.saved_tensors
        tokens, hidden_grad = Tokens(hidden, targets, weights * loss_grad), torch.empty_like(hidden)

        def add(weight_grad: torch.Tensor) -> None:
            found = zip(tokens.chunks(len(ctx.weight)), statistics_of_tokens[0::2], statistics_of_tokens[1::2])
            for (at, chunk), peak, total in found:
                logits = matmul.linear(chunk.hidden, ctx.weight)
                turn_into_gradient_(logits, peak, total, chunk, ctx.form)
                _add_products(hidden_grad[at], weight_grad, logits, chunk.hidden, ctx.weight)
                del logits  # before the next exist

        ctx.accumulate(add)
        return hidden_grad, None, None, None, None


def _loss_and_gradients(
    tokens: Tokens, weight: torch.Tensor, form: LossForm
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss, and its gradients by the hidden states and, in the wide dtype, by the weight."""
    loss, hidden_grad = tokens.weights.new_zeros(()), torch.empty_like(tokens.hidden)
    weight_grad = torch.zeros_like(weight, dtype=wide(weight[:0]).dtype)
    for at, chunk in tokens.chunks(len(weight)):
        logits = matmul.linear(chunk.hidden, weight)
        peak, total, losses = statistics(logits, chunk.targets, form)
        loss += torch.dot(losses, chunk.weights)
        turn_into_gradient_(logits, peak, total, chunk, form)
        _add_products(hidden_grad[at], weight_grad, logits, chunk.hidden, weight)
        del logits  # before the next exist
    return loss, hidden_grad, weight_grad


def _add_products(
    hidden_grad: torch.Tensor, weight_grad: torch.Tensor, grad: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor
) -> None:
    """From the logits' gradient: set that of the hidden states, and add to that of the weight."""
    hidden_grad.copy_(matmul.input_grad(grad, weight))
    matmul.add_weight_grad(weight_grad, grad, hidden)


def statistics(
    logits: torch.Tensor, targets: torch.Tensor, form: LossForm
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each token over all ranks: the largest logit, the sum of exp(logit - largest), and the loss."""
    kernels = find(KERNELS, logits, fused=form.fused)
    if kernels is None:
        peak, sums = reference_statistics(logits, targets, form)
    else:
        sizes = *logits.shape, form.num_real, logits.dtype
        peak, sums = logits.new_empty((4, len(logits)), dtype=torch.float32).split([1, 3])
        peak = peak[0]
        kernels("cross_entropy_peaks", peak, logits, *sizes)
        form.reduce(peak, "max")
        kernels("cross_entropy_sums", sums, logits, peak, targets, *sizes)
    total, target, uniform = form.reduce(sums, "sum")
    smoothing = form.label_smoothing
    losses = total.log() - (1 - smoothing) * target
    return peak, total, losses.sub_(uniform, alpha=smoothing / form.vocab_size) if smoothing else losses


def turn_into_gradient_(
    logits: torch.Tensor, peak: torch.Tensor, total: torch.Tensor, tokens: Tokens, form: LossForm
) -> None:
    """Overwrite ``logits`` by the gradient of the weighted loss."""
    on_target, on_all = 1 - form.label_smoothing, form.label_smoothing / form.vocab_size
    kernels = find(KERNELS, logits, fused=form.fused)
    if kernels is None:
        reference_gradient_(logits, peak, total, tokens, form)
        return
    rows = peak, total, tokens.weights, tokens.targets
    kernels("cross_entropy_gradient", logits, *rows, *logits.shape, form.num_real, on_target, on_all, logits.dtype)


def reference_statistics(
    logits: torch.Tensor, targets: torch.Tensor, form: LossForm
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest logit of each token over all ranks, and this rank's part of three sums [3, n].

    With x = logit - largest: the sums of exp(x), of x at the target, and of x.
    """
    scores = wide(logits[:, : form.num_real])
    peak = scores.amax(-1) if form.num_real else scores.new_full((len(logits),), -torch.inf)
    scores = scores - form.reduce(peak, "max").unsqueeze(-1)
    held = targets >= 0
    target = scores.new_zeros(len(logits))
    target[held] = scores[held].gather(-1, targets[held].unsqueeze(-1)).squeeze(-1)
    return peak, torch.stack((scores.exp().sum(-1), target, scores.sum(-1)))


def reference_gradient_(
    logits: torch.Tensor, peak: torch.Tensor, total: torch.Tensor, tokens: Tokens, form: LossForm
) -> None:
    weights = tokens.weights.unsqueeze(-1)
    grad = wide(logits[:, : form.num_real]).sub(peak.unsqueeze(-1)).exp_().mul_(weights / total.unsqueeze(-1))
    grad.sub_(weights * (form.label_smoothing / form.vocab_size))
    held = (tokens.targets >= 0).nonzero().squeeze(-1)
    grad[held, tokens.targets[held]] -= (1 - form.label_smoothing) * tokens.weights[held]
    logits.zero_()
    logits[:, : form.num_real] = grad
