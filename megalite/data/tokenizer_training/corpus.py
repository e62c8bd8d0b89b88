"""The texts to train on, from anything that preprocessing reads."""

import time
from pathlib import Path
from typing import Iterator, Sequence

from megalite.data.preprocess.chunks import InputFormat, format_of
from megalite.data.preprocess.inputs import read_blocks
from megalite.data.preprocess.parquet import parquet_chunks
from megalite.data.preprocess.records import InvalidRecord, Record, parse_records, text_record
from megalite.data.preprocess.streams import stored_bytes
from megalite.errors import DataError
from megalite.log import progress


def read_texts(files: Sequence[Path], wanted: InputFormat, keys: Sequence[str]) -> Iterator[str]:
    """All texts of ``files``, with a line of progress every second; plain text comes in pieces of whole lines.

    Raises DataError for what cannot be read, with file and line, and when there is no text at all.
    """
    total_bytes = sum(map(stored_bytes, files))
    done_bytes = num_characters = 0
    shown = time.monotonic()
    for path in files:
        for position, records in _pieces(path, format_of(path, wanted), keys):
            for text in _texts(path, records):
                num_characters += len(text)
                yield text
            if time.monotonic() - shown >= 1.0:
                shown = time.monotonic()
                progress(f"read {(done_bytes + position) / 1e6:.1f} of {total_bytes / 1e6:.1f} MB")
        done_bytes += stored_bytes(path)
    if not num_characters:
        raise DataError(f"--input must hold text to train on; {', '.join(map(str, files))} hold none.")
    progress(f"read {num_characters:,} characters; learning tokens")


Records = Iterator[Record | InvalidRecord]


def _pieces(path: Path, kind: InputFormat, keys: Sequence[str]) -> Iterator[tuple[int, Records]]:
    """How far each piece of a file reaches, in bytes as stored, and its records."""
    if kind == "parquet":
        for rows in parquet_chunks(path, keys, 0):
            yield rows.position, rows.records(keys)
        return
    for block in read_blocks([path]):
        if kind == "jsonl":
            yield block.position, parse_records(block, keys)
        else:
            yield block.position, iter([text_record(block.data, block.first_line)])


def _texts(path: Path, records: Records) -> Iterator[str]:
    for record in records:
        if isinstance(record, InvalidRecord):
            raise DataError(
                f"{path}:{record.line}: {record.reason}: {record.detail}. Each line must be one JSON object that holds "
                "the text (or plain text, or a row): mend it."
            )
        for texts in record.texts:
            yield from texts
