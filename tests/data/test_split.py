import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.split import parse_split, split_ranges
from megalite.errors import ConfigError


@pytest.mark.parametrize(
    "text, shares",
    [
        ("969,30,1", (0.969, 0.03, 0.001)),
        ("969, 30, 1", (0.969, 0.03, 0.001)),
        ("100", (1, 0, 0)),
        ("60,40", (0.6, 0.4, 0)),
        ("1e2,0,0", (1, 0, 0)),
        ("0.5,.25,.25", (0.5, 0.25, 0.25)),
        ("0,0,7", (0, 0, 1)),
    ],
)
def test_numbers_are_shares(text, shares):
    assert parse_split(text) == pytest.approx(shares, abs=1e-15)


@pytest.mark.parametrize(
    "text",
    ["-1,1,0", "90,abc5,5", "0,0,0", "1,2,3,4", "", "1,,2", "nan,1", "inf,1", "1e999", "1_0,1", "'99,1,0'", "1;2"],
)
def test_anything_else_is_refused_with_the_text(text):
    with pytest.raises(ConfigError, match="--split must be one to three non-negative numbers") as error:
        parse_split(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    "text, count, ranges",
    [
        ("969,30,1", 1000, [(0, 969), (969, 999), (999, 1000)]),
        ("98,1,1", 9, [(0, 9), (9, 9), (9, 9)]),
        ("100", 7, [(0, 7), (7, 7), (7, 7)]),
        ("1,1,1", 5, [(0, 2), (2, 3), (3, 5)]),
        ("50,50", 5, [(0, 2), (2, 5), (5, 5)]),  # 2.5 rounds to even
    ],
)
def test_ranges_are_rounded_like_megatron(text, count, ranges):
    assert split_ranges(text, count) == ranges


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3).filter(sum), st.integers(0, 10**10))
def test_ranges_partition_the_corpus(shares, count):
    ranges = split_ranges(",".join(map(str, shares)), count)
    assert ranges[0][0] == 0 and ranges[-1][1] == count
    assert all(left[1] == right[0] and left[0] <= left[1] for left, right in zip(ranges, ranges[1:]))
