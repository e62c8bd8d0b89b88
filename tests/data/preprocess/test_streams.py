import gzip
import os
import sys
from pathlib import Path

import pytest
import zstandard

from megalite.data.preprocess.streams import (
    STDIN,
    is_divisible,
    is_regular,
    open_stored,
    pieces,
    stored_bytes,
    whole_lines,
)
from megalite.errors import DataError

TEXT = os.urandom(3000).hex().encode() * 3


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def zst_stream(data: bytes) -> bytes:
    """A frame that does not tell its size, as a pipe through zstd makes."""
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return compressor.compress(data) + compressor.flush()


def read(path: Path, size: int = 1 << 16) -> list[bytes]:
    with open_stored(path) as stored:
        return list(pieces(path, stored, size))


PACKED = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "gzip of two members": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "zstd": zst(TEXT),
    "zstd of three frames": zst(TEXT[:100]) + zst_stream(TEXT[100:200]) + zst(TEXT[200:]),
}


@pytest.mark.parametrize("case", PACKED)
@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
def test_the_content_comes_back_in_pieces_of_bounded_size(tmp_path, case, size):
    (tmp_path / "x").write_bytes(PACKED[case])
    found = read(tmp_path / "x", size)
    assert b"".join(found) == TEXT
    assert all(0 < len(piece) <= size for piece in found)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zst])
def test_a_byte_order_mark_at_the_start_is_no_text(tmp_path, pack):
    (tmp_path / "x").write_bytes(pack(b"\xef\xbb\xbfab\xef\xbb\xbf"))
    assert b"".join(read(tmp_path / "x")) == b"ab\xef\xbb\xbf"


def overwritten(data: bytes) -> bytes:
    return data[:50] + b"\xff" * 9 + data[59:]


@pytest.mark.parametrize("kind, pack", [("gzip", gzip.compress), ("zstd", zst_stream), ("zstd", zst)])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: data[:300], overwritten], ids=["end", "middle", "bytes"]
)
def test_damaged_or_cut_off_data(tmp_path, kind, pack, damage):
    (tmp_path / "x.packed").write_bytes(damage(pack(TEXT)))
    with pytest.raises(DataError, match=rf"x.packed must be whole {kind} data; after \d+ bytes of text: .*again"):
        read(tmp_path / "x.packed")


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "x.zst").write_bytes(zst(TEXT))
    with pytest.raises(
        DataError,
        match=r"x.zst, which is compressed by zstd, needs .* not installed: pip install megalite\[zstandard\]",
    ):
        read(tmp_path / "x.zst")


def test_what_can_be_read_in_parts(tmp_path):
    (tmp_path / "plain").write_bytes(TEXT)
    (tmp_path / "gz").write_bytes(gzip.compress(TEXT))
    (tmp_path / "zst").write_bytes(zst(TEXT))
    os.mkfifo(tmp_path / "pipe")
    names = ("plain", "gz", "zst", "pipe")
    assert [is_divisible(tmp_path / name) for name in names] == [True, False, False, False]
    assert [is_regular(tmp_path / name) for name in names] == [True, True, True, False]
    assert not is_divisible(STDIN) and not is_regular(STDIN)
    assert [stored_bytes(tmp_path / name) for name in ("plain", "pipe")] == [len(TEXT), 0]
    assert stored_bytes(STDIN) == 0


def test_whole_lines():
    assert list(whole_lines([b"a", b"b\nc\nd", b"e", b"\n", b"f"])) == [b"ab\nc\n", b"de\n", b"f"]
    assert list(whole_lines([])) == []
