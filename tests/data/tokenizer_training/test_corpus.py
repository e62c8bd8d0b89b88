import gzip

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from megalite.data.tokenizer_training.corpus import read_texts
from megalite.errors import DataError


def texts(*paths, wanted="auto", keys=("text",)):
    return list(read_texts(paths, wanted, keys))


def test_every_kind_of_input(tmp_path):
    lines = b'{"text": "a", "title": "t"}\r\n\n{"text": ["b", "c"], "title": ""}'
    (tmp_path / "x.jsonl").write_bytes(lines)
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "x.zst").write_bytes(zstandard.compress(lines))
    for name in ("x.jsonl", "x.jsonl.gz", "x.zst"):
        assert texts(tmp_path / name) == ["a", "b", "c"]
        assert texts(tmp_path / name, keys=("title", "text")) == ["t", "a", "", "b", "c"]
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a", "b", "c"]}), tmp_path / "x.parquet", row_group_size=2)
    assert texts(tmp_path / "x.parquet", tmp_path / "x.jsonl") == ["a", "b", "c"] * 2


def test_plain_text_keeps_its_line_breaks(tmp_path):
    (tmp_path / "x.txt").write_bytes("one\n\nzwölf\r\n".encode())
    assert (
        "".join(texts(tmp_path / "x.txt"))
        == "".join(texts(tmp_path / "x.txt", wanted="text-lines"))
        == "one\n\nzwölf\r\n"
    )
    (tmp_path / "y").write_bytes(b"as told")
    assert texts(tmp_path / "y", wanted="text") == ["as told"]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.jsonl", b'{"text": "a"}\n{', "x.jsonl:2: malformed JSON.*mend it"),
        ("x.jsonl", b'{"text": 5}\n', "x.jsonl:1: not text"),
        ("x.jsonl", b'{"text": ""}\n', "--input must hold text to train on; .*x.jsonl hold none"),
        ("x.txt", b"a\n" * 600_000 + b"b\xff\n", "x.txt:600001: invalid UTF-8: byte 0xff at byte 2 of the line"),
    ],
)
def test_unusable_text_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        texts(tmp_path / name)
