"""What a run of preprocessing wrote and left out: counts for the screen and for the file beside the corpus."""

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from megalite.data.preprocess.encode import Column, EncodedChunk, Skipped
from megalite.log import progress


@dataclass
class ColumnSummary:
    """Counts of one JSON key's documents; ``longest`` is in tokens."""

    documents: int = 0
    sequences: int = 0
    tokens: int = 0
    empty: int = 0
    text_bytes: int = 0
    longest: int = 0

    def add(self, column: Column) -> None:
        self.documents += len(column.document_sequences)
        self.sequences += len(column.sequence_lengths)
        self.tokens += len(column.tokens)
        self.empty += int(np.count_nonzero(column.document_sequences == 0))
        self.text_bytes += int(column.text_bytes.sum())
        self.longest = max(self.longest, _longest_document(column))

    @property
    def tokens_per_byte(self) -> float:
        return self.tokens / self.text_bytes if self.text_bytes else 0.0

    def text(self) -> str:
        return (
            f"{self.documents:,} documents, {self.tokens:,} tokens, {self.text_bytes:,} bytes of text "
            f"({self.tokens_per_byte:.4f} tokens a byte), {self.empty:,} empty documents, "
            f"longest {self.longest:,} tokens"
        )


def _longest_document(column: Column) -> int:
    if not len(column.tokens):
        return 0
    ends = np.concatenate(([0], np.cumsum(column.sequence_lengths, dtype=np.int64)))
    last_sequence = np.cumsum(column.document_sequences)
    return int(np.diff(ends[np.concatenate(([0], last_sequence))]).max())


@dataclass
class Summary:
    """Counts over all keys."""

    columns: dict[str, ColumnSummary]
    skipped: dict[str, Skipped] = field(default_factory=dict)
    duplicates: int = 0
    input_bytes: int = 0
    seconds: float = 0.0

    def add(self, chunk: EncodedChunk) -> None:
        """Count a chunk whose lines have their numbers within the file."""
        for column_summary, column in zip(self.columns.values(), chunk.columns, strict=True):
            column_summary.add(column)
        for reason, skipped in chunk.skipped.items():
            self.skipped.setdefault(reason, dataclasses.replace(skipped, count=0)).count += skipped.count
        self.input_bytes += chunk.num_bytes

    @property
    def documents(self) -> int:
        return next(iter(self.columns.values())).documents

    @property
    def tokens(self) -> int:
        return sum(column.tokens for column in self.columns.values())

    def rates(self, seconds: float) -> str:
        seconds = max(seconds, 1e-9)
        return (
            f"{self.documents / seconds:,.0f} docs/s | {self.input_bytes / seconds / 1e6:.2f} MB/s | "
            f"{self.tokens / seconds:,.0f} tokens/s"
        )

    def skipped_text(self) -> list[str]:
        lines = [
            f"left out {skipped.count:,} lines, the first at {skipped.path}:{skipped.line}: {reason}: {skipped.detail}"
            for reason, skipped in self.skipped.items()
        ]
        return lines + [f"left out {self.duplicates:,} documents whose text came before"] * bool(self.duplicates)

    def as_json(self, key: str) -> dict[str, Any]:
        """What is recorded beside the corpus of ``key``: nothing that depends on machine or number of workers."""
        column = self.columns[key]
        return {
            "json_key": key,
            "num_sequences": column.sequences,
            "empty_documents": column.empty,
            "longest_document": column.longest,
            "text_bytes": column.text_bytes,
            "tokens_per_byte": round(column.tokens_per_byte, 6),
            "skipped_lines": {reason: skipped.count for reason, skipped in sorted(self.skipped.items())},
            "duplicate_documents": self.duplicates,
        }

    def report(self) -> dict[str, Any]:
        """All counts and rates of the run, for ``--summary-json``."""
        seconds = max(self.seconds, 1e-9)
        counts = {
            key: {**vars(column), "tokens_per_byte": column.tokens_per_byte} for key, column in self.columns.items()
        }
        return {
            "corpora": counts,
            "skipped": {reason: vars(skipped) for reason, skipped in self.skipped.items()},
            "duplicates": self.duplicates,
            "input_bytes": self.input_bytes,
            "seconds": self.seconds,
            "documents_per_second": self.documents / seconds,
            "megabytes_per_second": self.input_bytes / seconds / 1e6,
            "tokens_per_second": self.tokens / seconds,
        }

    def state(self) -> dict[str, Any]:
        """Everything, as JSON takes it; :meth:`restore` reads it back."""
        return dataclasses.asdict(self)

    @classmethod
    def restore(cls, state: dict[str, Any]) -> "Summary":
        columns = {key: ColumnSummary(**column) for key, column in state["columns"].items()}
        skipped = {reason: Skipped(**entry) for reason, entry in state["skipped"].items()}
        return cls(**{**state, "columns": columns, "skipped": skipped})


class Progress:
    """Shows how far a run is, every ``interval`` documents and at most once a second.

    ``seconds`` is what an interrupted run, which this one continues, has taken.
    """

    def __init__(self, interval: int, total_bytes: int, seconds: float = 0.0):
        self._interval = interval
        self._total_bytes = total_bytes
        self._last_time = time.monotonic()
        self._start = self._last_time - seconds
        self._next_documents = interval

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def update(self, summary: Summary, position: int) -> None:
        """``position``: bytes of the input files read, as in :class:`megalite.data.preprocess.inputs.Block`."""
        now = time.monotonic()
        if summary.documents < self._next_documents or now - self._last_time < 1.0:
            return
        self._last_time = now
        self._next_documents = summary.documents + self._interval
        text = f"{summary.documents:,} documents | {summary.rates(self.seconds)}"
        if 0 < position <= self._total_bytes:
            remaining = self.seconds * (self._total_bytes - position) / position
            text += f" | {100 * position / self._total_bytes:.1f} % | ETA {_clock(remaining)}"
        progress(text)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
