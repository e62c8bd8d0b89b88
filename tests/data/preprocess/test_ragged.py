import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.preprocess.ragged import Ragged, from_lists, join, merge_rows, surround

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=6)


def lists(rows: Ragged) -> list[list[int]]:
    assert rows.lengths.sum() == len(rows.values)
    return [row.tolist() for row in np.split(rows.values, rows.ends[:-1])] if len(rows.lengths) else []


@given(ROWS)
def test_lists_come_back(rows):
    assert lists(from_lists(rows)) == rows


@given(st.lists(ROWS, max_size=4))
def test_join(parts):
    assert lists(join([from_lists(part) for part in parts])) == [row for part in parts for row in part]


@given(ROWS, st.lists(st.integers(0, 9), max_size=3), st.lists(st.integers(0, 9), max_size=3))
def test_surround(rows, prefix, suffix):
    assert lists(surround(from_lists(rows), prefix, suffix)) == [prefix + row + suffix for row in rows]


@given(st.lists(ROWS.filter(bool), min_size=1, max_size=4))
def test_merge_rows(groups):
    rows = from_lists([row for group in groups for row in group])
    assert lists(merge_rows(rows, list(map(len, groups)))) == [sum(group, []) for group in groups]
