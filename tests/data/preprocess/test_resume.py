import json
import os

import pytest

from megalite.data.indexed_builder import Mark
from megalite.data.preprocess.resume import Place, Records, describe_task
from megalite.errors import DataError

PLACE = Place(chunks=3, lines=7, marks=(Mark(1, 2, 3), Mark(4, 5, 6)), digests=8, summary={"a": 1})


def test_a_place_is_found_by_a_run_of_the_same_task_only(tmp_path):
    records = Records(str(tmp_path / "out"), "task")
    assert records.load() is None
    assert records.save(PLACE)
    assert Records(str(tmp_path / "out"), "task").load() == PLACE
    assert Records(str(tmp_path / "out"), "other").load() is None
    assert Records(str(tmp_path / "other"), "task").load() is None
    assert [path.name for path in tmp_path.iterdir()] == ["out.resume.json"]
    records.remove()
    records.remove()
    assert not list(tmp_path.iterdir())


def test_a_task_that_cannot_be_repeated_has_no_record(tmp_path):
    records = Records(str(tmp_path / "out"), None)
    assert not records.save(PLACE)
    assert records.load() is None
    assert not list(tmp_path.iterdir())
    Records(str(tmp_path / "out"), "task").save(PLACE)
    assert records.load() is None, "nor does it take that of another task"


def test_a_task_is_its_flags_tokenizer_and_files(tmp_path):
    path = tmp_path / "x"
    path.write_text("1")
    first = describe_task({"a": True}, "tokenizer", [path])
    assert first == describe_task({"a": True}, "tokenizer", [path])
    others = [describe_task({"a": False}, "tokenizer", [path]), describe_task({"a": True}, "other", [path])]
    others.append(describe_task({"a": True}, "tokenizer", [path, path]))
    os.utime(path, (0, 0))
    others.append(describe_task({"a": True}, "tokenizer", [path]))
    path.write_text("12")
    os.utime(path, (0, 0))
    others.append(describe_task({"a": True}, "tokenizer", [path]))
    assert len({first, *others}) == 6
    os.mkfifo(tmp_path / "pipe")
    assert describe_task({}, "tokenizer", [path, tmp_path / "pipe"]) is None


def test_a_record_is_json(tmp_path):
    Records(str(tmp_path / "out"), "task").save(PLACE)
    assert json.loads((tmp_path / "out.resume.json").read_text())["task"] == "task"


@pytest.mark.parametrize("content", ["", "[]", '{"task": "task"}', "\udce9"])
def test_a_file_that_is_no_record_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "out.resume.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match="out.resume.json must be the record of an interrupted run; .* move it away"):
        Records(str(tmp_path / "out"), "task").load()
    assert path.exists()
