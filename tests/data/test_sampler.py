import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.sampler import microbatches


def test_layout_is_megatrons():
    assert microbatches(100, 8, 2, 0, 2) == [range(100, 102), range(104, 106)]
    assert microbatches(100, 8, 2, 1, 2) == [range(102, 104), range(106, 108)]


@given(st.integers(0, 10**12), st.integers(1, 4), st.integers(1, 6), st.integers(1, 5))
def test_any_layout_covers_the_same_samples_once(consumed, micro, dp, count):
    size = micro * dp * count
    ranks = [microbatches(consumed, size, micro, rank, dp) for rank in range(dp)]
    assert all(len(batches) == count and all(len(batch) == micro for batch in batches) for batches in ranks)
    in_order = [number for at_once in zip(*ranks) for batch in at_once for number in batch]
    assert in_order == list(range(consumed, consumed + size))


def test_a_batch_that_does_not_divide_is_our_bug():
    with pytest.raises(
        AssertionError, match="global batch 6 must be divisible by micro-batch 2 x data parallel 2"
    ):
        microbatches(0, 6, 2, 0, 2)
