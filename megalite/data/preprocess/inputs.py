"""The files that ``--input`` names, read as blocks of whole lines.

Blocks are cut from raw bytes and at ``\n`` only, so no block border falls into a UTF-8 character or into ``\r\n``, and
other line separators of Unicode (U+2028) are ordinary text.
"""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Iterable, Iterator, Sequence

from megalite.errors import DataError
from megalite.log import logger

JSON_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
BLOCK_BYTES = 1 << 18  # small enough that all workers end at about the same time, large enough to hide a message's cost
_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Block:
    """Whole lines of one file.

    ``first_line`` counts from 1. ``position`` is how many bytes of all input files, as they are stored, have been read
    up to the end of the block.
    """

    path: str
    first_line: int
    data: bytes
    position: int

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line that is not blank."""
        for number, line in enumerate(self.data.split(b"\n"), self.first_line):
            if line and not line.isspace():
                yield number, line


def find_inputs(paths: Sequence[str], suffixes: Sequence[str] = JSON_SUFFIXES) -> list[Path]:
    """The files that ``paths`` name, in their order; a directory stands for its files of ``suffixes``, sorted by path.

    Raises DataError for a path that does not exist and for a directory without such a file.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"--input must name existing files or directories; given {str(path)!r}, which does not exist.")
        files += _in_directory(path, suffixes) if path.is_dir() else [path]
    return files


def _in_directory(directory: Path, suffixes: Sequence[str]) -> list[Path]:
    entries = sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    chosen = [path for path in entries if path.name.endswith(tuple(suffixes)) and not _describes_corpus(path)]
    if not chosen:
        raise DataError(
            f"--input {directory} must hold files named *{', *'.join(suffixes)}; none of its {len(entries)} files is: "
            "name the files themselves if they are called otherwise."
        )
    if len(chosen) < len(entries):
        logger.info("%s: reading %d files, leaving out %d of other names", directory, len(chosen), len(entries) - len(chosen))
    return chosen


def _describes_corpus(path: Path) -> bool:
    """Whether it is the ``.json`` that an earlier run wrote beside its ``.idx``, perhaps into the same directory."""
    return path.suffix == ".json" and path.with_suffix(".idx").exists()


def read_blocks(files: Iterable[Path], block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The content of ``files``, gzip-compressed or not, as blocks of about ``block_bytes``; a longer line is one block.

    Raises DataError when compressed data is damaged or cut short.
    """
    position = 0
    for path in files:
        with open(path, "rb", buffering=1 << 20) as stored:
            first_line = 1
            for data in _whole_lines(_uncompressed(path, stored, block_bytes)):
                yield Block(str(path), first_line, data, position + _tell(stored))
                first_line += data.count(b"\n")
            position += _tell(stored)


def _tell(file: BinaryIO) -> int:
    return file.tell() if file.seekable() else 0


def _uncompressed(path: Path, stored: BinaryIO, size: int) -> Iterator[bytes]:
    """Pieces of at most ``size`` bytes, without the byte-order mark that some editors write first."""
    # The content decides, not the name: what is called .gz may have been unpacked on its way, and the reverse.
    compressed = stored.peek(2)[:2] == _GZIP_MAGIC
    stream = gzip.GzipFile(fileobj=stored) if compressed else stored
    num_bytes = 0
    try:
        while piece := stream.read(size):
            yield piece.removeprefix(_BOM) if num_bytes == 0 else piece
            num_bytes += len(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} must be whole gzip data; after {num_bytes} bytes of text: {error}. Fetch or compress the file again."
        ) from None


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    unfinished: list[bytes] = []  # joined once, so that a line of many pieces costs linear time
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join((*unfinished, piece[:end]))
            unfinished = []
        unfinished.append(piece[end:])
    rest = b"".join(unfinished)
    if rest:
        yield rest
