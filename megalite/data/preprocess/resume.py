"""What an interrupted run leaves so that the same command continues it: ``PREFIX.resume.json``, beside partial files.

Every half a minute the partial files are brought to the disk and the place is recorded; a run that finds the record of
the same task cuts the files to the recorded sizes and goes on from there, so that the result is that of a run that
was never interrupted. The record goes when the corpora appear.
"""

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from megalite.data.indexed_builder import Mark
from megalite.data.preprocess.inputs import BLOCK_BYTES
from megalite.data.preprocess.streams import is_regular
from megalite.errors import DataError
from megalite.log import logger

SECONDS_BETWEEN_RECORDS = 30.0
_FORMAT = 1


@dataclass(frozen=True)
class Place:
    """How far a run has come: ``chunks`` are done, of which the last ended after ``lines`` lines of its file.

    ``marks`` are the sizes of each corpus; ``digests`` is how many documents are known to the deduplication;
    ``summary`` is the state of a :class:`megalite.data.preprocess.summary.Summary`.
    """

    chunks: int
    lines: int
    marks: tuple[Mark, ...]
    digests: int
    summary: dict[str, Any]


def describe_task(flags: dict[str, Any], tokenizer: str, files: Sequence[Path]) -> str | None:
    """A hash of all that decides the result: ``flags``, the tokenizer's fingerprint, and sizes and times of the files.
    None when some input is a pipe, which cannot be read again.
    """
    if not all(map(is_regular, files)):
        return None
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    text = json.dumps([_FORMAT, BLOCK_BYTES, flags, tokenizer, stats], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Records:
    """The record of one run of ``task``; of a task without a description there is none."""

    def __init__(self, output_prefix: str, task: str | None):
        self._path = Path(f"{output_prefix}.resume.json")
        self._task = task

    def load(self) -> Place | None:
        """The place that an interrupted run of this task has recorded. Raises DataError if the file is no record."""
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            task, place = record["task"], record["place"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self._path} must be the record of an interrupted run; it is not one ({error!r}): move it away, or "
                "choose another --output-prefix."
            ) from None
        if self._task is None or task != self._task:
            logger.info("%s is of a run with other flags or inputs: starting anew", self._path)
            return None
        return Place(**{**place, "marks": tuple(Mark(**mark) for mark in place["marks"])})

    def save(self, place: Place) -> bool:
        """Record ``place``, whole or not at all, and say whether it is. What it speaks of must be on the disk."""
        if self._task is None:
            return False
        partial = self._path.with_name(self._path.name + ".partial")
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({"task": self._task, "place": dataclasses.asdict(place)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self._path)
        return True

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
