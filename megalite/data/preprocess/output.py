"""What a run writes: a corpus for each JSON key, and the place from which an interrupted run goes on."""

import time
from contextlib import ExitStack
from typing import Any, Callable

import numpy as np

from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.preprocess.dedup import Deduplicator
from megalite.data.preprocess.encode import EncodedChunk
from megalite.data.preprocess.resume import SECONDS_BETWEEN_RECORDS, Place, Records
from megalite.data.preprocess.summary import ColumnSummary, Summary
from megalite.data.sidecar import Sidecar
from megalite.errors import DistributedError, MegaliteError
from megalite.log import logger


class Output:
    """The corpora ``prefixes`` (by JSON key), to which chunks are written in order. Use it as a context manager.

    When its block fails by the user's fault, everything is dropped. When it is interrupted (by a signal, a full disk, a
    lost worker), what ``records`` know of stays for the next run.
    """

    def __init__(self, prefixes: dict[str, str], dtype: np.dtype, records: Records, digests: str | None):
        """``digests``: the file for hashes of documents; None keeps duplicates."""
        self._records = records
        place = records.load()
        self.continues = place is not None
        """Whether a part was written by an interrupted run."""
        self.chunks = place.chunks if place else 0
        """Chunks written."""
        self.summary = Summary.restore(place.summary) if place else Summary({key: ColumnSummary() for key in prefixes})
        self._lines = place.lines if place else 0
        marks = place.marks if place else (None,) * len(prefixes)
        self._builders = []
        with ExitStack() as opened:
            for prefix, mark in zip(prefixes.values(), marks, strict=True):
                self._builders.append(IndexedDatasetBuilder(prefix, dtype, resume=mark))
                opened.callback(self._builders[-1].suspend)
            self._dedup = Deduplicator(digests, place.digests if place else 0) if digests else None
            opened.pop_all()
        self._recorded = self.continues
        self._next_record = time.monotonic() + SECONDS_BETWEEN_RECORDS

    def write(self, chunk: EncodedChunk, seconds: float) -> None:
        """Add the documents of a chunk whose lines have their numbers within the file; ``seconds`` are spent so far."""
        if self._dedup is not None:
            self.summary.duplicates += self._dedup.filter(chunk)
        for builder, column in zip(self._builders, chunk.columns, strict=True):
            builder.add_documents(column.tokens, column.sequence_lengths, column.document_sequences)
        self.summary.add(chunk)
        self.summary.seconds = seconds
        self.chunks += 1
        if time.monotonic() >= self._next_record:
            self._record()

    def number_lines(self, chunk: EncodedChunk) -> None:
        """Give the invalid lines of the next chunk their numbers within the file."""
        before = self._lines if chunk.continues else 0
        for skipped in chunk.skipped.values():
            skipped.line += before
        self._lines = before + chunk.num_lines

    def finalize(self, sidecar: Callable[[str], Sidecar]) -> None:
        """Let the corpora appear, each with the description that ``sidecar`` gives for its key."""
        for key, builder in zip(self.summary.columns, self._builders, strict=True):
            builder.finalize(sidecar(key))

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        users_fault = kind is None or (issubclass(kind, MegaliteError) and not issubclass(kind, DistributedError))
        keep = self._recorded and not users_fault
        for builder in self._builders:
            builder.suspend() if keep else builder.abort()
        if self._dedup is not None:
            self._dedup.close(keep)
        if keep:
            logger.warning("interrupted: the same command will go on from the last record of its place")
        else:
            self._records.remove()

    def _record(self) -> None:
        marks = tuple(builder.sync() for builder in self._builders)
        digests = self._dedup.sync() if self._dedup is not None else 0
        self._recorded = self._records.save(Place(self.chunks, self._lines, marks, digests, self.summary.state()))
        self._next_record = time.monotonic() + SECONDS_BETWEEN_RECORDS
