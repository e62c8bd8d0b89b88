"""Exact deduplication: which documents are the first with their text.

A document is known by 64 bits of a hash of its text, so that memory is 8 to 16 bytes a document. Two different texts
share a hash with probability n^2 / 2^65 for n documents: 3 in a million for 10 million documents, 3 % for a billion,
and then one document too many is left out.
"""

import os
from pathlib import Path

import numpy as np

from megalite.data.preprocess.encode import EncodedChunk
from megalite.data.spool import open_spool


class SeenDigests:
    """A set of uint64 numbers: sorted arrays, each more than twice as long as the next."""

    def __init__(self, digests: np.ndarray):
        self._levels: list[np.ndarray] = []
        self._add(np.sort(digests))

    def first_seen(self, digests: np.ndarray) -> np.ndarray:
        """bool [n]: where ``digests`` (uint64 [n]) appear for the first time, earlier calls included."""
        unique, first = np.unique(digests, return_index=True)
        known = np.zeros(len(unique), bool)
        for level in self._levels:
            places = np.minimum(np.searchsorted(level, unique), len(level) - 1)
            known |= level[places] == unique
        self._add(unique[~known])
        result = np.zeros(len(digests), bool)
        result[first[~known]] = True
        return result

    def _add(self, fresh: np.ndarray) -> None:
        if not len(fresh):
            return
        self._levels.append(fresh)
        while len(self._levels) > 1 and len(self._levels[-2]) <= 2 * len(self._levels[-1]):
            last = self._levels.pop()
            # A stable sort merges runs that are sorted already in linear time.
            self._levels[-1] = np.sort(np.concatenate((self._levels[-1], last)), kind="stable")


class Deduplicator:
    """Drops documents whose text came before. What it knows is also in a file, for a run that continues this one."""

    def __init__(self, path: str, num_known: int):
        """The first ``num_known`` numbers of the file ``path`` are known."""
        self._spool = open_spool(path, 8 * num_known)
        self._seen = SeenDigests(np.fromfile(path, np.uint64))

    def filter(self, chunk: EncodedChunk) -> int:
        """Leave only new documents in ``chunk``; returns how many were dropped."""
        first = self._seen.first_seen(chunk.digests)
        self._spool.write(chunk.digests[first].tobytes())
        if not first.all():
            chunk.columns = [column.chosen(first) for column in chunk.columns]
        return int(np.count_nonzero(~first))

    def sync(self) -> int:
        """Bring all to the disk; returns how many digests are known."""
        self._spool.flush()
        os.fsync(self._spool.fileno())
        return self._spool.tell() // 8

    def close(self, keep: bool) -> None:
        self._spool.close()
        if not keep:
            Path(self._spool.name).unlink(missing_ok=True)
