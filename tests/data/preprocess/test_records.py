import json

import pytest

from megalite.data.preprocess.inputs import Block
from megalite.data.preprocess.records import InvalidRecord, Record, parse_records


@pytest.fixture(params=["orjson", "json"], autouse=True)
def parser(request, monkeypatch):
    """Both ways to read JSON, which must not show."""
    if request.param == "json":
        monkeypatch.setattr("megalite.data.preprocess.records.orjson", None)


def parse(data: bytes, keys=("text",)):
    return list(parse_records(Block("x.jsonl", 11, data, 0), keys))


def test_a_string_is_a_document_of_one_sequence_and_a_list_one_of_several():
    data = b'{"text": "one", "n": 1}\n\n{"text": ["a", "", "b"]}\r\n{"text": ""}'
    assert parse(data) == [Record(11, [["one"]]), Record(13, [["a", "", "b"]]), Record(14, [[""]])]


def test_every_key_gives_its_texts():
    assert parse(b'{"b": "B", "a": "A"}', ("a", "b")) == [Record(11, [["A"], ["B"]])]


def test_characters_come_through():
    text = "\u2028\x00\u0085 \U0001f600 é"
    for ensure_ascii in (True, False):  # escaped, with surrogate pairs, or as they are
        data = json.dumps({"text": text}, ensure_ascii=ensure_ascii).encode("utf-8")
        assert parse(data) == [Record(11, [[text]])]


@pytest.mark.parametrize(
    "line, reason, detail",
    [
        (b'{"text": "a"', "malformed JSON", "at column"),
        (b"{", "malformed JSON", "at column 2"),
        (b'{"text": 1' + b"0" * 5000 + b"}", "malformed JSON", "integer string conversion"),
        (b"[" * 100_000, "malformed JSON", "recursion"),
        (b'{"text": "a"} {"text": "b"}', "several values on one line", "the second starts at column 15"),
        (b'{"text": "a"}{"text": "b"}', "several values on one line", "the second starts at column 14"),
        (b'["a"]', "not a JSON object", "the line is a list"),
        (b'"a"', "not a JSON object", "the line is a str"),
        (b'{"body": "a", "id": 3}', "missing key", "there is no 'text', only 'body', 'id'"),
        (b"{}", "missing key", "there is no 'text', only no key"),
        (b'{"text": null}', "not text", "'text' holds a NoneType, not a string"),
        (b'{"text": 3}', "not text", "'text' holds a int"),
        (b'{"text": ["a", 3]}', "not text", "'text' holds a int"),
        (b'{"text": {"a": "b"}}', "not text", "'text' holds a dict"),
        (b'{"text": "a\xffb"}', "invalid UTF-8", "byte 0xff at byte 12 of the line"),
        (b'{"text": "\xc3"}', "invalid UTF-8", "byte 0xc3 at byte 11"),
        ("\ufeff{}".encode("utf-16-le"), "invalid UTF-8", "byte 0xff at byte 1"),
        (b'{"text": "ab\\ud800c"}', "lone surrogate", r"'text' holds \ud800 at character 3"),
        (b'{"text": ["fine", "\\udfff"]}', "lone surrogate", r"'text' holds \udfff at character 1"),
    ],
)
def test_a_fault_is_named_with_its_line_and_the_others_are_read(line, reason, detail):
    first, fault, last = parse(b'{"text": "one"}\n' + line + b'\n{"text": "three"}\n')
    assert (first, last) == (Record(11, [["one"]]), Record(13, [["three"]]))
    assert isinstance(fault, InvalidRecord) and (fault.line, fault.reason) == (12, reason)
    assert detail in fault.detail
