import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from megalite.dp.buckets import ALIGNMENT, BucketKey, make_bucket, plan_buckets


def test_buckets_fill_in_backward_order_and_split_at_the_limit():
    # forward: 0 1 2 3 4 of 4 elements each, at most 10 a bucket: backward takes 4 3, then 2 1, then 0
    assert plan_buckets("aaaaa", [4] * 5, 10) == [[4, 3], [2, 1], [0]]


def test_buckets_come_in_the_order_in_which_backward_completes_them():
    # "b" (say, the norms) opens first but has parameters down to index 1, so "a" completes its first bucket earlier
    assert plan_buckets("ababaab", [1, 1, 9, 1, 9, 9, 1], 18) == [[5, 4], [6, 3, 1], [2, 0]]


def test_a_parameter_above_the_limit_has_a_bucket_of_its_own():
    assert plan_buckets("aaa", [1, 100, 1], 10) == [[2], [1], [0]]
    assert plan_buckets("", [], 10) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30))), st.integers(1, 60))
def test_plan_is_a_partition_by_key_within_the_limit(params, max_size):
    keys, sizes = [key for key, _ in params], [size for _, size in params]
    plan = plan_buckets(keys, sizes, max_size)
    assert sorted(index for bucket in plan for index in bucket) == list(range(len(params)))
    for bucket in plan:
        assert len({keys[index] for index in bucket}) == 1
        assert bucket == sorted(bucket, reverse=True)
        assert len(bucket) == 1 or sum(sizes[index] for index in bucket) <= max_size
    completed = [min(bucket) for bucket in plan]
    assert completed == sorted(completed, reverse=True)


def _key(dtype):
    return BucketKey(dtype, reduce_axes=(), decay=True, sharded=False, tie_copy=False, tie=None)


def test_parameters_and_main_gradients_are_views_of_the_bucket():
    first, second = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.randn(ALIGNMENT + 1))
    values = [first.detach().clone(), second.detach().clone()]
    bucket = make_bucket(_key(torch.float32), [first, second], num_parts=3)
    assert [entry.start for entry in bucket.entries] == [0, ALIGNMENT]
    assert bucket.param.numel() == bucket.grad.numel() == 3 * ALIGNMENT
    assert torch.equal(first.detach(), values[0]) and torch.equal(second.detach(), values[1])
    bucket.param.fill_(2.0)
    bucket.grad.fill_(3.0)
    assert all((param == 2.0).all() and (param.main_grad == 3.0).all() for param in (first, second))
    assert first.main_grad.shape == first.shape


def test_elements_between_parameters_are_zero():
    params = [nn.Parameter(torch.ones(3, 5)), nn.Parameter(torch.ones(7))]
    bucket = make_bucket(_key(torch.float64), params, num_parts=2)
    assert bucket.param.sum().item() == 22
    assert bucket.part(1, 2) == (ALIGNMENT, 2 * ALIGNMENT)


def test_main_gradients_are_never_narrower_than_float32():
    expected = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float64: torch.float64}
    for dtype, grad_dtype in expected.items():
        param = nn.Parameter(torch.ones(4, dtype=dtype))
        bucket = make_bucket(_key(dtype), [param], num_parts=1)
        assert (bucket.param.dtype, param.dtype, param.main_grad.dtype) == (dtype, dtype, grad_dtype)


def test_two_bfloat16_gradients_add_up_exactly():
    param = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    make_bucket(_key(torch.bfloat16), [param], num_parts=1)
    for value in (256.0, 1.0):
        param.main_grad.add_(torch.full_like(param, value))
    assert param.main_grad.tolist() == [257.0, 257.0]
