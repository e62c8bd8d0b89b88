"""Rows of different lengths as two arrays: all values one after another, and the length of each row."""

from itertools import chain
from typing import NamedTuple, Sequence

import numpy as np


class Ragged(NamedTuple):
    """``values`` of all rows, one row after another, and ``lengths`` of the rows (int64)."""

    values: np.ndarray
    lengths: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """Where each row ends in ``values`` (int64)."""
        return np.cumsum(self.lengths, dtype=np.int64)


def from_lists(rows: Sequence[Sequence[int]]) -> Ragged:
    """Rows of ids as int32 arrays."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return Ragged(np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths)


def join(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all ``parts``, in their order."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts] or [np.zeros(0, np.int32)]
    lengths = [part.lengths for part in parts] or [np.zeros(0, np.int64)]
    return Ragged(np.concatenate(values), np.concatenate(lengths))


def surround(rows: Ragged, prefix: Sequence[int], suffix: Sequence[int]) -> Ragged:
    """Each row with ``prefix`` before and ``suffix`` after it."""
    if not prefix and not suffix:
        return rows
    ends = rows.ends
    places = np.concatenate([np.repeat(ends - rows.lengths, len(prefix)), np.repeat(ends, len(suffix))])
    added = np.concatenate([np.tile(prefix, len(ends)), np.tile(suffix, len(ends))]).astype(rows.values.dtype)
    # An empty row's prefix and suffix go to one place, and the end of a row is the beginning of the next: the order
    # of the rows decides, and the sort keeps prefixes before suffixes within a row.
    numbers = 2 * np.arange(len(ends))
    owner = np.concatenate([np.repeat(numbers, len(prefix)), np.repeat(numbers + 1, len(suffix))])
    order = np.argsort(owner, kind="stable")
    return Ragged(np.insert(rows.values, places[order], added[order]), rows.lengths + len(prefix) + len(suffix))


def merge_rows(rows: Ragged, group_sizes: Sequence[int]) -> Ragged:
    """Neighbouring rows joined: the first ``group_sizes[0]`` of them to one row, the next to the second, and so on."""
    bounds = np.concatenate(([0], rows.ends))[np.concatenate(([0], np.cumsum(group_sizes, dtype=np.int64)))]
    return Ragged(rows.values, np.diff(bounds))
