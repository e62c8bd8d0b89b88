"""A line, a file or a row of the input to the texts it holds, or the reason why it holds none."""

import json
from typing import Any, Iterator, NamedTuple, Sequence

from megalite.data.preprocess.inputs import Block

try:
    import orjson
except ImportError:
    orjson = None


class Record(NamedTuple):
    """The texts of one line: for each JSON key, the sequences of its document (a plain string is one sequence)."""

    line: int
    texts: list[list[str]]


class InvalidRecord(Exception):
    """A line that cannot be used: ``reason`` says the kind of fault in a few words, ``detail`` shows this one."""

    def __init__(self, line: int, reason: str, detail: str):
        super().__init__(line, reason, detail)
        self.line, self.reason, self.detail = line, reason, detail


def parse_records(block: Block, keys: Sequence[str]) -> Iterator[Record | InvalidRecord]:
    """Each line of ``block`` that is not blank, one JSON object each, as its texts or as the fault that it has."""
    for number, line in block.lines():
        try:
            record, checked = _parse_object(number, line)
            # JSON can spell half of a surrogate pair ("\ud800"), which is no character and has no UTF-8 form.
            check = not checked and b"\\u" in line
            yield Record(number, [_texts(number, record, key, check) for key in keys])
        except InvalidRecord as fault:
            yield fault


def line_records(block: Block) -> Iterator[Record | InvalidRecord]:
    """Each line of ``block`` that is not blank, without its line break, as a text."""
    for number, line in block.lines():
        try:
            yield Record(number, [[_decode(number, line.removesuffix(b"\r"))]])
        except InvalidRecord as fault:
            yield fault


def text_record(data: bytes, first_line: int = 1) -> Record | InvalidRecord:
    """All of ``data``, which begins at ``first_line`` of its file, as one text, byte for byte."""
    try:
        return Record(first_line, [[data.decode("utf-8")]])
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        return _invalid_utf8(
            first_line + data.count(b"\n", 0, error.start), data[error.start], error.start - line_start
        )


def row_record(number: int, values: Sequence[Any], keys: Sequence[str]) -> Record | InvalidRecord:
    """One row of a table, whose ``values`` belong to ``keys``; a value of bytes is UTF-8."""
    try:
        decoded = [_decode(number, value) if isinstance(value, bytes) else value for value in values]
        row = dict(zip(keys, decoded, strict=True))
        return Record(number, [_texts(number, row, key, check=False) for key in keys])
    except InvalidRecord as fault:
        return fault


def _decode(number: int, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid_utf8(number, data[error.start], error.start) from None


def _invalid_utf8(number: int, byte: int, place: int) -> InvalidRecord:
    return InvalidRecord(number, "invalid UTF-8", f"byte 0x{byte:02x} at byte {place + 1} of the line")


def _parse_object(number: int, line: bytes) -> tuple[dict[str, Any], bool]:
    """The object, and whether all its strings are known to be made of characters."""
    try:
        record, checked = _loads(number, line)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise InvalidRecord(number, "several values on one line", f"the second starts at column {error.colno}")
        raise InvalidRecord(number, "malformed JSON", f"{error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; too deep a nesting
        raise InvalidRecord(number, "malformed JSON", str(error))
    if not isinstance(record, dict):
        raise InvalidRecord(number, "not a JSON object", f"the line is a {type(record).__name__}")
    return record, checked


def _loads(number: int, line: bytes) -> tuple[Any, bool]:
    """orjson is two to three times as fast and accepts less: what it refuses, ``json`` accepts or explains."""
    if orjson is not None:
        try:
            return orjson.loads(line), True
        except orjson.JSONDecodeError:
            pass
    return json.loads(_decode(number, line)), False


def _texts(number: int, record: dict[str, Any], key: str, check: bool) -> list[str]:
    """The texts of ``key``, which are looked through for what is no character if ``check`` is set."""
    if key not in record:
        raise InvalidRecord(
            number, "missing key", f"there is no {key!r}, only {', '.join(map(repr, record)) or 'no key'}"
        )
    value = record[key]
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str):
            raise InvalidRecord(number, "not text", f"{key!r} holds a {type(text).__name__}, not a string")
        if check and not text.isascii():
            _check_characters(number, key, text)
    return texts


def _check_characters(number: int, key: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise InvalidRecord(number, "lone surrogate", f"{key!r} holds \\u{code:04x} at character {error.start + 1}")
