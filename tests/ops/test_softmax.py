import pytest
import torch

from megalite.ops.softmax import scaled_causal_softmax, scaled_masked_softmax
from tests.ops.truth import check, randn, run

SCALE = 0.3
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LENGTHS = [1, 2, 3, 15, 16, 17, 31, 33, 64, 127, 128, 129, 1000, 2048, 2049, 4096, 4097]
"""Lengths at which fused softmax kernels elsewhere refused, or were wrong."""


def plain(scores, hidden):
    return (scores * SCALE).masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(0)


def causal_mask(queries, keys):
    return torch.tensor([[key > query + keys - queries for key in range(keys)] for query in range(queries)])


def random_mask(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_masked_softmax_of_any_length(isa, length, dtype):
    mask = random_mask(2, 1, 3, length)
    mask[0, 0, 1] = True  # a query that sees nothing
    scores = 3 * randn(2, 2, 3, length, dtype=dtype)
    check(lambda x: scaled_masked_softmax(x, mask, SCALE), lambda x: plain(x, mask), [scores])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [length for length in LENGTHS if length < 1000])
def test_causal_softmax_of_any_length(isa, length, dtype):
    hidden = causal_mask(length, length)
    check(
        lambda x: scaled_causal_softmax(x, SCALE),
        lambda x: plain(x, hidden),
        [3 * randn(2, length, length, dtype=dtype)],
    )


@pytest.mark.parametrize("queries, keys", [(1, 7), (3, 7), (7, 3), (5, 40)])
def test_the_last_causal_query_sees_all_keys(isa, queries, keys):
    hidden = causal_mask(queries, keys)
    check(
        lambda x: scaled_causal_softmax(x, SCALE),
        lambda x: plain(x, hidden),
        [randn(4, queries, keys, dtype=torch.float32)],
    )


def test_one_mask_for_the_whole_batch(isa):
    mask = random_mask(1, 1, 5, 9)
    check(
        lambda x: scaled_masked_softmax(x, mask, SCALE),
        lambda x: plain(x, mask),
        [randn(3, 2, 5, 9, dtype=torch.float32)],
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reference_is_as_exact_as_torch(reference, dtype):
    mask, hidden, scores = random_mask(2, 1, 5, 33), causal_mask(5, 33), randn(2, 3, 5, 33, dtype=dtype)
    mask[1, 0, 2] = True
    check(lambda x: scaled_masked_softmax(x, mask, SCALE), lambda x: plain(x, mask), [scores])
    check(lambda x: scaled_causal_softmax(x, SCALE), lambda x: plain(x, hidden), [scores])


def test_float64_gradients():
    mask = random_mask(2, 1, 3, 4)
    scores = randn(2, 2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: scaled_masked_softmax(x, mask, SCALE), [scores])
    assert torch.autograd.gradcheck(lambda x: scaled_causal_softmax(x, SCALE), [scores])


def test_large_scores_do_not_overflow(isa):
    scores = torch.tensor([[[3e38, -3e38, 3e38]]])
    y, grad = run(lambda x: scaled_causal_softmax(x, 1.0), [scores])
    assert torch.equal(y, torch.tensor([[[0.5, 0.0, 0.5]]])) and torch.isfinite(grad).all()


def test_no_queries_no_keys_and_strided_scores(isa):
    assert scaled_causal_softmax(torch.ones(2, 0, 5), SCALE).shape == (2, 0, 5)
    assert scaled_masked_softmax(torch.ones(2, 1, 3, 0), torch.ones(2, 1, 3, 0, dtype=torch.bool), SCALE).shape == (
        2,
        1,
        3,
        0,
    )
    hidden = causal_mask(6, 6)
    check(
        lambda x: scaled_causal_softmax(x.mT, SCALE),
        lambda x: plain(x.mT, hidden),
        [randn(2, 6, 6, dtype=torch.float32)],
    )


def test_a_wrong_mask_is_named():
    with pytest.raises(AssertionError, match=r"mask torch.bool \(3, 1, 2, 2\) does not fit scores \(2, 1, 2, 2\)"):
        scaled_masked_softmax(torch.ones(2, 1, 2, 2), torch.ones(3, 1, 2, 2, dtype=torch.bool), SCALE)
    with pytest.raises(AssertionError, match="mask torch.float32"):
        scaled_masked_softmax(torch.ones(2, 1, 2, 2), torch.ones(2, 1, 2, 2), SCALE)
