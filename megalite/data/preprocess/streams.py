"""Files, compressed or not, and standard input as streams of bytes.

The content decides whether a file is compressed, not its name: what is called .gz may have been unpacked on its way,
and the reverse.
"""

import contextlib
import gzip
import sys
import zlib
from pathlib import Path
from typing import BinaryIO, Iterable, Iterator

from megalite.data.optional import require_package
from megalite.errors import DataError

STDIN = Path("-")
BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def is_regular(path: Path) -> bool:
    """Whether any process can read the file, as often as it likes: it is no pipe."""
    return path != STDIN and path.is_file()


def is_divisible(path: Path) -> bool:
    """Whether several processes can read parts of the file: it is a regular one, and not compressed."""
    if not is_regular(path):
        return False
    with open(path, "rb") as file:
        return not _compression(file.read(4))


def stored_bytes(path: Path) -> int:
    """Size of the file; 0 where it is a pipe, whose end nobody knows."""
    return path.stat().st_size if is_regular(path) else 0


def _compression(start: bytes) -> str | None:
    if start.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if start.startswith(_ZSTD_MAGIC) else None


@contextlib.contextmanager
def open_stored(path: Path) -> Iterator[BinaryIO]:
    """The bytes of ``path`` as they are stored; ``-`` is standard input."""
    if path == STDIN:
        yield sys.stdin.buffer
    else:
        with open(path, "rb", buffering=1 << 20) as file:
            yield file


def pieces(path: Path, stored: BinaryIO, size: int) -> Iterator[bytes]:
    """The text of ``stored``, uncompressed and without the byte-order mark that some editors write first, in pieces of
    at most ``size`` bytes.

    Raises DataError, with the file, when compressed data is damaged or cut short.
    """
    # A pipe may show fewer bytes at first, but a compressor writes its header at once.
    compression = _compression(stored.peek(4)[:4])  # type: ignore[attr-defined]
    num_bytes = 0
    try:
        for piece in _uncompressed(path, stored, size, compression):
            yield piece.removeprefix(BOM) if num_bytes == 0 else piece
            num_bytes += len(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile, _Damaged) as error:
        raise DataError(
            f"{path} must be whole {compression} data; after {num_bytes} bytes of text: {error}. Fetch or compress the "
            "file again."
        ) from None


class _Damaged(Exception):
    pass


def _uncompressed(path: Path, stored: BinaryIO, size: int, compression: str | None) -> Iterator[bytes]:
    if compression == "zstd":
        yield from _zstd(path, stored, size)
        return
    stream = gzip.GzipFile(fileobj=stored) if compression == "gzip" else stored
    while piece := stream.read(size):
        yield piece


def _zstd(path: Path, stored: BinaryIO, size: int) -> Iterator[bytes]:
    """All frames of ``stored``. The package's own reader takes the end of the file inside of a frame for its end."""
    zstandard = require_package("zstandard", f"reading {path}, which is compressed by zstd,", DataError)
    frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    begun = False
    try:
        while data := stored.read(1 << 14):  # little, for it may be much when unpacked
            while data:
                begun = True
                yield from _cut(frame.decompress(data), size)
                data = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame, begun = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(), False
    except zstandard.ZstdError as error:
        raise _Damaged(str(error)) from None
    if begun:
        raise _Damaged("it ends inside of a frame")


def _cut(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """``pieces`` joined and cut anew behind a ``\\n``; a longer line is one piece."""
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
