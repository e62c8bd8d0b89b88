"""The input cut into chunks: what one worker encodes at a time.

A chunk of a plain file is a range of bytes, which the worker reads itself. Compressed files and pipes can be read from
one end only: the parent reads them, and their chunks carry the data. How the input is cut depends on the files alone,
never on the number of workers.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Iterator, Literal, Sequence

from megalite.data.preprocess.inputs import (
    BLOCK_BYTES,
    JSON_SUFFIXES,
    PARQUET_SUFFIXES,
    TEXT_SUFFIXES,
    Block,
    count_lines,
    read_blocks,
)
from megalite.data.preprocess.parquet import ParquetRows, parquet_chunks
from megalite.data.preprocess.records import InvalidRecord, Record, line_records, parse_records, text_record
from megalite.data.preprocess.streams import BOM, is_divisible, is_regular, open_stored, pieces, stored_bytes
from megalite.errors import ConfigError

InputFormat = Literal["auto", "jsonl", "text", "text-lines", "parquet"]
SUFFIXES: dict[InputFormat, Sequence[str]] = {
    "auto": JSON_SUFFIXES + TEXT_SUFFIXES + PARQUET_SUFFIXES,
    "jsonl": JSON_SUFFIXES,
    "text": TEXT_SUFFIXES,
    "text-lines": TEXT_SUFFIXES,
    "parquet": PARQUET_SUFFIXES,
}


Kind = Literal["jsonl", "text", "text-lines"]


@dataclass(frozen=True)
class LineRange:
    """The lines of a plain file whose first byte lies in ``start`` to ``stop``."""

    path: str
    kind: Kind
    start: int
    stop: int
    position: int

    def load(self) -> "LineBlock":
        """The lines, numbered from 1, for nobody knows how many come before. A range that lies within a long line has
        none, and the range where the line begins reads all of it.
        """
        with open(self.path, "rb") as file:
            begin = _line_start(file, self.start, self.stop)
            end = _line_start(file, self.stop) if begin < self.stop else begin
            file.seek(begin)
            data = file.read(end - begin)
        if not self.start:
            data = data.removeprefix(BOM)
        return LineBlock(Block(self.path, 1, data, self.position), self.kind)


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a compressed file or a pipe; of kind "text", all of it."""

    block: Block
    kind: Kind

    @property
    def path(self) -> str:
        return self.block.path

    @property
    def position(self) -> int:
        return self.block.position

    @property
    def num_bytes(self) -> int:
        return len(self.block.data)

    @property
    def num_lines(self) -> int:
        return count_lines(self.block.data)

    def records(self, keys: Sequence[str]) -> Iterator[Record | InvalidRecord]:
        if self.kind == "jsonl":
            yield from parse_records(self.block, keys)
        elif self.kind == "text-lines":
            yield from line_records(self.block)
        else:
            yield text_record(self.block.data)


@dataclass(frozen=True)
class TextFile:
    """A file that is one document. The worker reads it."""

    path: str
    position: int

    def load(self) -> LineBlock:
        path = Path(self.path)
        with open_stored(path) as stored:
            data = b"".join(pieces(path, stored, BLOCK_BYTES))
        return LineBlock(Block(self.path, 1, data, self.position), "text")


def _line_start(file: BinaryIO, position: int, limit: int | None = None) -> int:
    """Where the first line that begins at ``position`` or later begins; at least ``limit`` if that is not before it."""
    if position == 0:
        return 0
    file.seek(position - 1)
    file.readline(-1 if limit is None else limit - position + 1)
    return file.tell()


Chunk = LineRange | LineBlock | TextFile | ParquetRows


def format_of(path: Path, wanted: InputFormat) -> InputFormat:
    """The format of a file: what is ``wanted``, or by its name that of text, of Parquet or else of JSON lines."""
    if wanted != "auto":
        return wanted
    if path.name.endswith(TEXT_SUFFIXES):
        return "text"
    return "parquet" if path.name.endswith(PARQUET_SUFFIXES) else "jsonl"


def check_keys(files: Sequence[Path], wanted: InputFormat, keys: Sequence[str]) -> None:
    """Plain text has no keys: raises ConfigError when several are asked for."""
    plain = next((path for path in files if format_of(path, wanted) in ("text", "text-lines")), None)
    if plain is not None and len(keys) > 1:
        raise ConfigError(
            f"--json-keys must be one key for plain text, which has none; given {' '.join(keys)} with {plain}."
        )


def chunks(
    files: Sequence[Path], wanted: InputFormat, keys: Sequence[str], num_bytes: int = BLOCK_BYTES
) -> Iterator[Chunk]:
    """All of ``files`` in order, in chunks of about ``num_bytes``. Raises DataError for a file that cannot be read."""
    position = 0
    for path in files:
        kind = format_of(path, wanted)
        if kind == "parquet":
            yield from parquet_chunks(path, keys, position)
        elif kind == "text" and is_regular(path):
            yield TextFile(str(path), position + os.path.getsize(path))
        elif kind == "text":
            blocks = list(read_blocks([path], num_bytes))
            yield LineBlock(Block(str(path), 1, b"".join(block.data for block in blocks), position), kind)
        elif is_divisible(path):
            yield from _ranges(path, kind, position, num_bytes)
        else:
            for block in read_blocks([path], num_bytes):
                yield LineBlock(replace(block, position=position + block.position), kind)
        position += stored_bytes(path)


def _ranges(path: Path, kind: Kind, position: int, num_bytes: int) -> Iterator[LineRange]:
    size = os.path.getsize(path)
    for start in range(0, size, num_bytes):
        stop = min(start + num_bytes, size)
        yield LineRange(str(path), kind, start, stop, position + stop)
