import sys

import pyarrow
import pytest
from pyarrow import parquet

from megalite.data.preprocess.chunks import chunks
from megalite.data.preprocess.records import InvalidRecord
from megalite.data.preprocess.streams import STDIN
from megalite.errors import DataError


def write(path, row_group_size=2, **columns):
    parquet.write_table(pyarrow.table(columns), path, row_group_size=row_group_size)
    return path


def found(path, keys=("text",)):
    return [list(chunk.records(keys)) for chunk in chunks([path], "auto", keys)]


def test_a_row_is_a_document_and_a_row_group_a_chunk(tmp_path):
    path = write(tmp_path / "x.parquet", text=["one", "", "thrée\r\n\x00", "four", "five"], other=list(range(5)))
    groups = found(path)
    assert [[record.texts for record in group] for group in groups] == [
        [[["one"]], [[""]]], [[["thrée\r\n\x00"]], [["four"]]], [[["five"]]]
    ]
    assert [record.line for group in groups for record in group] == [1, 2, 3, 4, 5]
    last = list(chunks([path], "auto", ("text",)))[-1]
    assert (last.position, last.num_lines) == (path.stat().st_size, 1)
    assert last.num_bytes > 0


def test_several_columns_lists_and_bytes(tmp_path):
    path = write(
        tmp_path / "x.parquet", a=[["one", "two"], []], b=pyarrow.array([b"\xc3\xa9", b"\xff"], pyarrow.binary())
    )
    (good, bad), = found(path, ("b", "a"))
    assert good.texts == [["é"], ["one", "two"]]
    assert (bad.line, bad.reason) == (2, "invalid UTF-8")


def test_a_null_is_an_invalid_row(tmp_path):
    path = write(tmp_path / "x.parquet", text=["one", "two", None])
    fault = found(path)[-1][-1]
    assert isinstance(fault, InvalidRecord)
    assert (fault.line, fault.reason, fault.detail) == (3, "not text", "'text' holds a NoneType, not a string")


def test_a_column_that_is_not_there(tmp_path):
    path = write(tmp_path / "x.parquet", content=["a"], url=["b"])
    with pytest.raises(DataError, match="--json-keys must name columns of .*x.parquet; text is none of content, url"):
        found(path)


def test_what_is_no_parquet_file(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="x.parquet must be a Parquet file; it cannot be read as one"):
        found(tmp_path / "x.parquet")


def test_damaged_rows(tmp_path):
    path = write(tmp_path / "x.parquet", row_group_size=1000, text=[f"text {number}" * 9 for number in range(1000)])
    (chunk,) = chunks([path], "auto", ("text",))
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56  # the header of the first page
    path.write_bytes(content)
    with pytest.raises(DataError, match="x.parquet must be whole; after row 0: .*again"):
        list(chunk.records(("text",)))


def test_standard_input_cannot_be_parquet():
    with pytest.raises(DataError, match="--input - cannot be Parquet"):
        list(chunks([STDIN], "parquet", ("text",)))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", text=["a"])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(
        DataError, match=r"x.parquet, a Parquet file, needs .* not installed: pip install megalite\[pyarrow\]"
    ):
        found(path)
