"""A chunk of the input to arrays of token ids: what a worker process does."""

import functools
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Iterable, Iterator, Literal, NamedTuple, Sequence

import numpy as np

from megalite.data.indexed import optimal_dtype
from megalite.data.preprocess.chunks import Chunk, LineBlock, LineRange, TextFile
from megalite.data.preprocess.encoders import build_encoder
from megalite.data.preprocess.parquet import ParquetRows
from megalite.data.preprocess.records import InvalidRecord, Record
from megalite.data.preprocess.sentences import split_sentences
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import TokenizerError

_GROUP_CHARACTERS = 1 << 21  # texts held at a time, of a chunk that may be larger


@dataclass(frozen=True)
class EncodeSettings:
    """What a worker must know, besides the chunk itself."""

    tokenizer: TokenizerOptions
    keys: tuple[str, ...] = ("text",)
    append_eod: bool = False
    skip_invalid: bool = False
    backend: Literal["gigatoken", "tokenizers"] = "tokenizers"
    sentences: Literal["whole", "split", "split with line breaks"] = "whole"
    digests: bool = False


class Column(NamedTuple):
    """The documents of one JSON key: ids one after another, tokens of each sequence, sequences of each document."""

    tokens: np.ndarray  # the corpus's dtype [tokens]
    sequence_lengths: np.ndarray  # int32 [sequences]
    document_sequences: np.ndarray  # int32 [documents]
    text_bytes: np.ndarray  # int64 [documents], of the texts in UTF-8

    def chosen(self, keep: np.ndarray) -> "Column":
        """Only the documents where ``keep`` (bool [documents]) is set."""
        kept_sequences = np.repeat(keep, self.document_sequences)
        kept_tokens = np.repeat(kept_sequences, self.sequence_lengths)
        return Column(
            self.tokens[kept_tokens],
            self.sequence_lengths[kept_sequences],
            self.document_sequences[keep],
            self.text_bytes[keep],
        )


@dataclass
class Skipped:
    """Lines that cannot be used for one reason, and where and how it is first met."""

    count: int
    path: str
    line: int
    detail: str


@dataclass
class EncodedChunk:
    """A chunk's documents, one column a key, and the lines that are no documents, by reason.

    ``continues``: the lines are numbered from the chunk's first, which follows the last line of the chunk before.
    """

    columns: list[Column]
    num_bytes: int
    num_lines: int
    position: int
    continues: bool = False
    skipped: dict[str, Skipped] = field(default_factory=dict)
    digests: np.ndarray | None = None  # uint64 [documents]


class ChunkEncoder:
    """Encodes chunks with a tokenizer of its own.

    An empty text becomes a document without a sequence, with or without ``append_eod``, so that documents and lines
    correspond one to one. A list of strings becomes a document of as many sequences, empty ones left out; only the last
    gets the end-of-document token. Both are Megatron-LM's rules.
    """

    def __init__(self, settings: EncodeSettings):
        self._settings = settings
        tokenizer = build_tokenizer(settings.tokenizer)
        self._eod, self._vocab_size = tokenizer.eod, tokenizer.vocab_size
        self._dtype = optimal_dtype(tokenizer.vocab_size)
        self._encoder = build_encoder(settings.backend, tokenizer)

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        """Unless invalid lines are skipped, the first of them ends the chunk. Raises DataError for a damaged file."""
        continues = isinstance(chunk, LineRange) and chunk.start > 0
        loaded = load(chunk)
        faults: list[InvalidRecord] = []
        parts: list[list[Column]] = []
        digests: list[bytes] = []
        for records in _groups(_valid(loaded.records(self._settings.keys), faults, self._settings.skip_invalid)):
            columns, records = self._encode_valid(records, faults)
            parts.append(columns)
            if self._settings.digests:
                digests += map(_digest, records)
        return EncodedChunk(
            [_joined(column) for column in zip(*parts)] or [self._column([]) for _ in self._settings.keys],
            loaded.num_bytes,
            loaded.num_lines,
            chunk.position,
            continues,
            _count(chunk.path, faults),
            np.frombuffer(b"".join(digests), np.uint64) if self._settings.digests else None,
        )

    def _encode_valid(self, records: list[Record], faults: list[InvalidRecord]) -> tuple[list[Column], list[Record]]:
        """The columns of those of ``records`` that have an encoding; the others are added to ``faults``."""
        columns = self._encode(records)
        if columns is None:  # at least one text has no encoding: find which, one by one
            unknown = {fault.line: fault for record in records if (fault := self._encoding_fault(record))}
            faults += unknown.values()
            records = [record for record in records if record.line not in unknown]
            columns = self._encode(records)
            assert columns is not None, "texts that encode one by one must encode together"
        return columns, records

    def _encode(self, records: list[Record]) -> list[Column] | None:
        try:
            return [self._column([record.texts[k] for record in records]) for k in range(len(self._settings.keys))]
        except TokenizerError:
            return None

    def _column(self, documents: list[list[str]]) -> Column:
        text_bytes = np.fromiter((sum(map(_utf8_bytes, texts)) for texts in documents), np.int64, len(documents))
        if self._settings.sentences != "whole":
            keep_breaks = self._settings.sentences == "split with line breaks"
            documents = [[part for text in texts for part in split_sentences(text, keep_breaks)] for texts in documents]
        counts = np.fromiter(map(len, documents), np.int64, len(documents))
        rows = self._encoder(list(chain.from_iterable(documents)))
        owner = np.repeat(np.arange(len(documents)), counts)[rows.lengths > 0]
        document_sequences = np.bincount(owner, minlength=len(documents)).astype(np.int32)
        tokens, lengths = rows.values, rows.lengths[rows.lengths > 0]
        assert not len(tokens) or tokens.max() < self._vocab_size, "a tokenizer gives ids of its vocabulary"
        tokens = tokens.astype(self._dtype)
        if self._settings.append_eod:
            last = np.cumsum(document_sequences)[document_sequences > 0] - 1
            tokens = np.insert(tokens, np.cumsum(lengths)[last], self._eod)
            lengths[last] += 1
        return Column(tokens, lengths.astype(np.int32), document_sequences, text_bytes)

    def _encoding_fault(self, record: Record) -> InvalidRecord | None:
        try:
            for texts in record.texts:
                self._encoder(texts)
        except TokenizerError as error:
            return InvalidRecord(record.line, "cannot be encoded", str(error))
        return None


def _valid(
    parsed: Iterable[Record | InvalidRecord], faults: list[InvalidRecord], skip_invalid: bool
) -> Iterator[Record]:
    """The records among ``parsed``; what is none goes to ``faults``, and ends the chunk unless it is to be skipped."""
    for record in parsed:
        if isinstance(record, InvalidRecord):
            faults.append(record)
            if not skip_invalid:
                return
        else:
            yield record


def _groups(records: Iterator[Record]) -> Iterator[list[Record]]:
    group, size = [], 0
    for record in records:
        group.append(record)
        size += sum(len(text) for texts in record.texts for text in texts)
        if size >= _GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _joined(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else Column(*map(np.concatenate, zip(*columns)))


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _digest(record: Record) -> bytes:
    """64 bits of a hash over all texts of a record and their borders."""
    digest = blake2b(digest_size=8)
    for texts in record.texts:
        digest.update(len(texts).to_bytes(8, "little"))
        for text in texts:
            data = text.encode("utf-8")
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _count(path: str, faults: list[InvalidRecord]) -> dict[str, Skipped]:
    skipped: dict[str, Skipped] = {}
    for fault in sorted(faults, key=lambda fault: fault.line):
        skipped.setdefault(fault.reason, Skipped(0, path, fault.line, fault.detail)).count += 1
    return skipped


def first_texts(chunks: Iterable[Chunk], keys: Sequence[str], num_characters: int = 1 << 18) -> list[str]:
    """The first valid texts of ``chunks``, of ``num_characters`` in all."""
    records = (record for chunk in chunks for record in load(chunk).records(keys) if isinstance(record, Record))
    found, size = [], 0
    for text in (text for record in records for texts in record.texts for text in texts):
        found.append(text[: num_characters - size])
        size += len(text)
        if size >= num_characters:
            break
    return found


def load(chunk: Chunk) -> LineBlock | ParquetRows:
    """``chunk`` with the means to read its records."""
    return chunk.load() if isinstance(chunk, (LineRange, TextFile)) else chunk


@functools.cache
def _encoder(settings: EncodeSettings) -> ChunkEncoder:
    return ChunkEncoder(settings)


def encode_chunk(settings: EncodeSettings, chunk: Chunk) -> EncodedChunk:
    """Encode ``chunk``; a process builds the tokenizer of ``settings`` once."""
    return _encoder(settings)(chunk)
