import gzip
import json
import os
import threading

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.preprocess.chunks import LineBlock, LineRange, TextFile, check_keys, chunks, format_of
from megalite.data.preprocess.records import InvalidRecord
from megalite.errors import ConfigError


def records(path, wanted="auto", num_bytes=1 << 20, keys=("text",)):
    return [
        record
        for chunk in chunks([path], wanted, keys, num_bytes)
        for record in (chunk.load() if isinstance(chunk, (LineRange, TextFile)) else chunk).records(keys)
    ]


def texts(path, wanted="auto", num_bytes=1 << 20):
    return [record.texts[0][0] for record in records(path, wanted, num_bytes)]


@given(
    lines=st.lists(st.text(alphabet="ab\r€😀\u2028", max_size=12)),
    ended=st.booleans(),
    mark=st.booleans(),
    num_bytes=st.integers(1, 40),
)
def test_ranges_of_a_plain_file_hold_each_line_once_and_whole(tmp_path_factory, lines, ended, mark, num_bytes):
    content = "\n".join(lines).encode() + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("ranges") / "x.jsonl"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + content)
    ranges = list(chunks([path], "auto", ("text",), num_bytes))
    blocks = [chunk.load().block for chunk in ranges]
    assert b"".join(block.data for block in blocks) == content
    filled = [block.data for block in blocks if block.data]
    assert all(data.endswith(b"\n") for data in filled[:-1])
    for data in filled:
        data.decode("utf-8")
    assert [chunk.position for chunk in ranges] == [
        min(num_bytes * (n + 1), path.stat().st_size) for n in range(len(ranges))
    ]


def test_the_ranges_within_a_long_line_are_empty(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"a\n" + b"b" * 1000 + b"\nc\n")
    loaded = [chunk.load().block.data for chunk in chunks([path], "auto", ("text",), 100)]
    assert loaded[0] == b"a\n" + b"b" * 1000 + b"\n"
    assert loaded[1:] == [b""] * 9 + [b"c\n"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize("num_bytes", [5, 1000])
def test_jsonl_in_any_packing(tmp_path, pack, num_bytes):
    (tmp_path / "x").write_bytes(pack(b'{"text": "one"}\r\n\n{"text": "tw\xc3\xb6"}'))
    assert texts(tmp_path / "x", num_bytes=num_bytes) == ["one", "twö"]


def test_a_text_file_is_one_document_byte_for_byte(tmp_path):
    content = "one\r\n\n two \u2028\x00€\n"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + content.encode())
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(content.encode()))
    (tmp_path / "c.txt").write_bytes(b"")
    for name, expected in (("a.txt", content), ("b.txt.gz", content), ("c.txt", "")):
        assert texts(tmp_path / name, num_bytes=3) == [expected]


def test_lines_of_text_are_documents_on_request(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\n\n  \n two \xe2\x80\xa8x\nthree")
    for num_bytes in (1, 4, 100):
        assert texts(tmp_path / "a.txt", "text-lines", num_bytes) == ["one", " two \u2028x", "three"]


def test_invalid_utf8_in_text_has_its_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nth\xffree\n")
    for wanted in ("text", "text-lines"):
        (fault,) = [record for record in records(tmp_path / "a.txt", wanted) if isinstance(record, InvalidRecord)]
        assert (fault.line, fault.reason, fault.detail) == (3, "invalid UTF-8", "byte 0xff at byte 3 of the line")


def test_positions_go_on_over_files_of_all_kinds(tmp_path):
    contents = {
        "a.jsonl": b'{"text": "1"}\n',
        "b.jsonl.gz": gzip.compress(b'{"text": "2"}\n'),
        "c.txt": b"three",
        "d.jsonl": b'{"text": "4"}',
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = list(chunks([tmp_path / name for name in contents], "auto", ("text",)))
    assert [type(chunk) for chunk in found] == [LineRange, LineBlock, TextFile, LineRange]
    sizes = [len(content) for content in contents.values()]
    assert [chunk.position for chunk in found] == [sum(sizes[: n + 1]) for n in range(4)]


@pytest.mark.parametrize("wanted, expected", [("jsonl", ['{"text": "1"}']), ("text", None), ("text-lines", None)])
def test_a_pipe_is_read_by_the_parent(tmp_path, wanted, expected):
    os.mkfifo(tmp_path / "pipe")
    content = json.dumps({"text": "1"}) + "\n"
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(content,))
    writer.start()
    (chunk,) = chunks([tmp_path / "pipe"], wanted, ("text",))
    writer.join()
    (record,) = chunk.records(("text",))
    assert record.texts == {"jsonl": [["1"]], "text": [[content]], "text-lines": [[content.strip()]]}[wanted]


def test_the_name_tells_the_format(tmp_path):
    names = ["a.jsonl", "a.json.gz", "a", "a.txt", "a.txt.zst", "a.parquet", "-"]
    formats = ["jsonl", "jsonl", "jsonl", "text", "text", "parquet", "jsonl"]
    assert [format_of(tmp_path / name, "auto") for name in names] == formats
    assert format_of(tmp_path / "a.txt", "jsonl") == "jsonl"


def test_plain_text_has_one_key(tmp_path):
    check_keys([tmp_path / "a.jsonl"], "auto", ("a", "b"))
    check_keys([tmp_path / "a.txt"], "auto", ("a",))
    with pytest.raises(
        ConfigError, match="--json-keys must be one key for plain text, which has none; given a b with .*a.txt"
    ):
        check_keys([tmp_path / "a.jsonl", tmp_path / "a.txt"], "auto", ("a", "b"))
