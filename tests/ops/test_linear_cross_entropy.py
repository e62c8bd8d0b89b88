import weakref
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from megalite.ops import linear_cross_entropy as module
from megalite.ops.linear_cross_entropy import LossForm, Tokens, gradient_is_early, linear_cross_entropy
from tests.ops.truth import check, randn, run

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
VOCAB, PADDED = 37, 40


@pytest.fixture(params=["early", "late"])
def gradient(request, monkeypatch):
    """Either way of computing the gradient, in chunks of four tokens."""
    monkeypatch.setattr(module, "gradient_is_early", lambda *sizes: request.param == "early")
    monkeypatch.setattr(module, "_MIN_TOKENS", 4)
    monkeypatch.setattr(module, "_CHUNK", {"cpu": 1})


class _Accumulated(torch.autograd.Function):
    """Hands the gradient that the op accumulates to plain autograd."""

    @staticmethod
    def forward(ctx, weight, received):
        ctx.received = received
        return weight.detach().clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.received.to(grad.dtype), None


def fused(form, targets, weights):
    def loss(hidden, weight):
        received = torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        values = Tokens(hidden, targets, weights.to(received.dtype))
        receiver = _Accumulated.apply(weight, received).sum()  # made first, so that its backward comes last
        result = linear_cross_entropy(values, weight.detach(), form, lambda add: add(received))
        return result + 0 * receiver.to(result.dtype)

    return loss


def plain(form, targets, weights):
    def loss(hidden, weight):
        logits = (hidden @ weight.t())[:, : form.num_real]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=form.label_smoothing)
        return (losses * weights.to(losses.dtype)).sum()

    return loss


def problem(num_tokens=21, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(VOCAB, (num_tokens,), generator=generator)
    weights = torch.rand(num_tokens, generator=generator) * (torch.arange(num_tokens) % 5 != 2)
    return [2 * randn(num_tokens, 16, dtype=dtype), randn(PADDED, 16, dtype=dtype, seed=1)], targets, weights


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_native_is_as_exact_as_torch(isa, gradient, dtype, smoothing):
    inputs, targets, weights = problem(dtype=dtype)
    form = LossForm(VOCAB, VOCAB, smoothing)
    check(fused(form, targets, weights), plain(form, targets, weights), inputs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reference_is_as_exact_as_torch(reference, gradient, dtype, smoothing):
    inputs, targets, weights = problem(dtype=dtype)
    form = LossForm(VOCAB, VOCAB, smoothing)
    check(fused(form, targets, weights), plain(form, targets, weights), inputs)


class InTurn:
    """All ranks of a vocabulary that is split, run one after the other as often as it takes to know every reduction."""

    def __init__(self, num_ranks):
        self.num_ranks, self.rounds = num_ranks, []

    def run(self, body):
        for known in range(100):
            self.rounds.append([])
            results, finished = [], True
            for rank in range(self.num_ranks):
                calls = iter(range(known + 1))

                def reduce(tensor, op):
                    call = next(calls, None)
                    if call is None or call > known:
                        return tensor
                    if call == known:
                        nonlocal finished
                        finished = False
                        self.rounds[known].append(tensor.clone())
                        return tensor
                    parts = torch.stack(self.rounds[call])
                    return tensor.copy_(parts.amax(0) if op == "max" else parts.sum(0))

                results.append(body(rank, reduce))
            if finished:
                return results
        raise AssertionError("the reductions never ended")


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_split_vocabulary_gives_the_same_loss_and_gradients(gradient, implementation, num_ranks):
    """The last of four ranks holds 7 tokens and 3 rows of padding."""
    (hidden, weight), targets, weights = problem()
    whole = LossForm(VOCAB, VOCAB, 0.1)
    loss, hidden_grad, weight_grad = run(plain(whole, targets, weights), [hidden, weight])
    size = PADDED // num_ranks

    def body(rank, reduce):
        local = targets - rank * size
        local = torch.where((local >= 0) & (local < size), local, -1)
        form = replace(whole, num_real=min(VOCAB - rank * size, size), reduce=reduce)
        return run(fused(form, local, weights), [hidden, weight[rank * size : (rank + 1) * size]])

    losses, hidden_grads, weight_grads = zip(*InTurn(num_ranks).run(body))
    torch.testing.assert_close(torch.stack(losses), loss.expand(num_ranks), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sum(hidden_grads), hidden_grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.cat(weight_grads), weight_grad, rtol=1e-4, atol=1e-5)


def test_a_rank_may_hold_nothing_but_padding(isa, gradient):
    (hidden, weight), targets, weights = problem()
    form = LossForm(VOCAB, 0, reduce=lambda tensor, op: tensor.fill_(1) if op == "max" else tensor.add_(1))
    _, hidden_grad, weight_grad = run(fused(form, torch.full_like(targets, -1), weights), [hidden, weight])
    assert not hidden_grad.any() and not weight_grad.any()


def test_float64_gradients(gradient):
    (hidden, weight), targets, weights = problem(num_tokens=6, dtype=torch.float64)
    form, weights = LossForm(VOCAB, VOCAB, 0.1), weights.double()
    actual, expected = (run(kind(form, targets, weights), [hidden, weight]) for kind in (fused, plain))
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)

    def loss(x):
        return linear_cross_entropy(Tokens(x, targets, weights), weight, form, lambda add: add(weight.clone()))

    assert torch.autograd.gradcheck(loss, [hidden.requires_grad_()])


def test_the_gradient_is_added_to_what_is_there(isa, gradient):
    (hidden, weight), targets, weights = problem(dtype=torch.bfloat16)
    form, totals = LossForm(VOCAB, VOCAB), [torch.zeros(weight.shape), torch.ones(weight.shape)]
    for total in totals:
        values = Tokens(hidden.requires_grad_(), targets, weights)
        linear_cross_entropy(values, weight, form, lambda add, total=total: add(total)).backward()
    torch.testing.assert_close(totals[1] - 1, totals[0], rtol=0, atol=1e-6)


def test_no_tokens_and_no_gradient(isa):
    (hidden, weight), targets, weights = problem()
    form = LossForm(VOCAB, VOCAB)

    def refuse(add):
        raise AssertionError("nothing was differentiated")

    assert linear_cross_entropy(Tokens(hidden[:0], targets[:0], weights[:0]), weight, form, refuse) == 0
    assert linear_cross_entropy(Tokens(hidden, targets, weights), weight, form, refuse) > 0


def test_the_logits_never_exist_as_a_whole(monkeypatch):
    """No product is larger than a chunk, in either pass."""
    sizes = []
    linear = module.matmul.linear
    monkeypatch.setattr(module.matmul, "linear", lambda x, w: sizes.append(len(x) * len(w)) or linear(x, w))
    monkeypatch.setattr(module, "_CHUNK", {"cpu": 300 * PADDED})
    for hidden_size in (16, 1024):  # with the gradient in the forward pass, and not
        hidden = torch.randn(1000, hidden_size, requires_grad=True)
        tokens = Tokens(hidden, torch.zeros(1000, dtype=torch.int64), torch.ones(1000))
        weight = torch.randn(PADDED, hidden_size)
        linear_cross_entropy(tokens, weight, LossForm(PADDED, PADDED), lambda add: add(weight)).backward()
    assert sum(sizes) == 3 * 1000 * PADDED and max(sizes) == 300 * PADDED


@pytest.mark.parametrize("hidden_size", [16, 1024], ids=["early", "late"])
def test_one_chunk_of_logits_at_a_time(monkeypatch, hidden_size):
    """The logits of a chunk are gone before those of the next exist."""
    alive, linear = [], module.matmul.linear

    def watched(x, w):
        assert all(reference() is None for reference in alive)
        logits = linear(x, w)
        alive.append(weakref.ref(logits))
        return logits

    monkeypatch.setattr(module.matmul, "linear", watched)
    monkeypatch.setattr(module, "_CHUNK", {"cpu": 300 * PADDED})
    tokens = Tokens(
        torch.randn(1000, hidden_size, requires_grad=True), torch.zeros(1000, dtype=torch.int64), torch.ones(1000)
    )
    weight = torch.randn(PADDED, hidden_size)
    linear_cross_entropy(tokens, weight, LossForm(PADDED, PADDED), lambda add: add(weight)).backward()
    assert len(alive) == (4 if hidden_size == 16 else 8)


def test_when_the_gradient_is_early():
    assert gradient_is_early(torch.empty(512, 256), torch.empty(10, 256))
    assert not gradient_is_early(torch.empty(511, 256), torch.empty(10, 256))
    assert not gradient_is_early(torch.empty(512, 256, dtype=torch.float16), torch.empty(10, 256))


def test_wrong_shapes_are_named():
    (hidden, weight), targets, weights = problem()
    with pytest.raises(AssertionError, match="targets and weights must be of 21 tokens"):
        linear_cross_entropy(Tokens(hidden, targets[1:], weights), weight, LossForm(VOCAB, VOCAB), list)
    with pytest.raises(AssertionError, match=r"hidden \(21, 16\) and weight \(40, 15\) differ"):
        linear_cross_entropy(Tokens(hidden, targets, weights), weight[:, 1:], LossForm(VOCAB, VOCAB), list)
