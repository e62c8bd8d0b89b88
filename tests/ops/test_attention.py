import math

import pytest
import torch

from megalite.ops import attention
from megalite.ops.attention import causal_attention, visible
from tests.ops.truth import check, randn, run

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# Kernels may have a path of their own for bfloat16; float16 goes the way of float32.
PATHS = [torch.float32, torch.bfloat16]


def plain(qkv, first=None):
    """Attention written out."""
    sequence, batch_size, groups, members, head_dim = qkv.shape
    query, key, value = (part.permute(1, 2, 3, 0, 4) for part in qkv.split([members - 2, 1, 1], dim=3))
    if first is None:
        first = torch.zeros(batch_size, sequence, dtype=torch.int64)
    place = torch.arange(sequence)
    hidden = (place < first[:, :, None]) | (place > place[:, None])
    scores = (query @ key.transpose(-1, -2) / math.sqrt(head_dim)).masked_fill(hidden[:, None, None], -torch.inf)
    return (scores.softmax(-1) @ value).permute(3, 0, 1, 2, 4).reshape(sequence, batch_size, -1)


def packed(*shape, dtype):
    return randn(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [2, 7, 8, 9, 63, 64, 65, 127, 128, 150])
def test_any_length(isa, length, dtype):
    check(causal_attention, plain, [packed(length, 2, 2, 3, 16, dtype=dtype)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sequence, head_dim", [(100, 32), (300, 64), (150, 128)])
def test_as_exact_as_the_attention_of_torch(isa, sequence, head_dim, dtype):
    qkv = packed(sequence, 1, 2, 4, head_dim, dtype=dtype)
    check(causal_attention, lambda x: attention.reference(x, None).reshape(sequence, 1, -1), [qkv])


@pytest.mark.parametrize("dtype", PATHS, ids=str)
def test_one_token_sees_itself(isa, dtype):
    qkv = packed(1, 2, 1, 3, 16, dtype=dtype)
    y, grad = run(causal_attention, [qkv])
    assert torch.equal(y.view(2, 16), qkv[0, :, 0, 2])
    assert grad[:, :, :, :2].abs().max() < 1e-6, "which weights do not depend on"


@pytest.mark.parametrize("dtype", PATHS, ids=str)
@pytest.mark.parametrize("head_dim", [1, 3, 8, 15, 16, 17, 31, 32, 33, 48, 64, 80, 96, 128, 129, 200])
def test_any_width_of_a_head(isa, head_dim, dtype):
    check(causal_attention, plain, [packed(70, 1, 1, 3, head_dim, dtype=dtype)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("groups, heads", [(1, 4), (2, 3), (3, 1)])
def test_heads_that_share_keys(isa, groups, heads, dtype):
    check(causal_attention, plain, [packed(67, 2, groups, heads + 2, 8, dtype=dtype)])


def documents(length, *starts):
    first = torch.zeros(length, dtype=torch.int64)
    for start in starts:
        first[start:] = start
    return first


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_documents_do_not_see_each_other(isa, dtype):
    first = torch.stack([documents(200, 1, 2, 60, 130, 190), documents(200, 64, 128), documents(200)])
    qkv = packed(200, 3, 1, 4, 16, dtype=dtype)
    check(lambda x: causal_attention(x, first), lambda x: plain(x, first), [qkv])


@pytest.mark.parametrize("dtype", PATHS, ids=str)
def test_a_window_may_begin_anywhere(isa, dtype):
    first = torch.tensor([[max(0, i - 3 - 40 * (i % 3)) for i in range(150)]])  # not in order
    qkv = packed(150, 1, 1, 3, 16, dtype=dtype)
    check(lambda x: causal_attention(x, first), lambda x: plain(x, first), [qkv])


@pytest.mark.parametrize("dtype", PATHS, ids=str)
def test_large_scores_neither_overflow_nor_vanish(isa, dtype):
    qkv = packed(90, 1, 1, 3, 16, dtype=dtype)
    qkv[:, :, :, :2] *= 60
    assert qkv[:, :, :, 0].abs().max() > 150
    check(causal_attention, plain, [qkv])


@pytest.mark.parametrize("dtype", PATHS, ids=str)
def test_what_is_not_a_number_stays_visible(isa, dtype):
    qkv = packed(70, 1, 1, 3, 16, dtype=dtype)
    qkv[66, 0, 0, 0, 0] = torch.nan
    y = causal_attention(qkv)
    assert y[66].isnan().all() and not y[:66].isnan().any() and not y[67:].isnan().any()


@pytest.mark.parametrize("dtype", PATHS, ids=str)
def test_the_threads_do_not_show(isa, dtype):
    qkv = packed(130, 2, 2, 4, 32, dtype=dtype)
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(run(causal_attention, [qkv]))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*results))


def test_a_view_is_read_as_it_is(isa):
    qkv = packed(9, 3, 2, 3, 8, dtype=torch.float32).transpose(0, 1)
    assert torch.equal(causal_attention(qkv), causal_attention(qkv.contiguous()))


def test_the_reference(reference):
    first = torch.stack([documents(20, 3, 9), documents(20)])
    qkv = packed(20, 2, 2, 4, 8, dtype=torch.float64)
    for given in (None, first):
        for ours, exact in zip(run(lambda x: causal_attention(x, given), [qkv]), run(lambda x: plain(x, given), [qkv])):
            torch.testing.assert_close(ours, exact, rtol=0, atol=1e-12)


def test_visible():
    assert visible(torch.tensor([[0, 0, 2]])).tolist() == [[[[1, 0, 0], [1, 1, 0], [0, 0, 1]]]]


def test_gradcheck(reference):
    qkv = packed(5, 1, 1, 4, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: causal_attention(x, documents(5, 2)[None]), [qkv])


def test_no_queries(isa):
    assert causal_attention(torch.empty(0, 2, 1, 3, 8)).shape == (0, 2, 8)
