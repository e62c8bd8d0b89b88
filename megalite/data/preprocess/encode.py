"""A block of JSONL lines to arrays of token ids: what a worker process does."""

import functools
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from megalite.data.preprocess.inputs import Block
from megalite.data.preprocess.records import InvalidRecord, Record, parse_records
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import DataError, TokenizerError


@dataclass(frozen=True)
class EncodeSettings:
    """What a worker must know, besides the lines themselves."""

    tokenizer: TokenizerOptions
    keys: tuple[str, ...]
    append_eod: bool
    skip_invalid: bool


class Column(NamedTuple):
    """The documents of one JSON key: ids one after another, tokens of each sequence, sequences of each document."""

    tokens: np.ndarray  # int32 [tokens]
    sequence_lengths: np.ndarray  # int32 [sequences]
    document_sequences: np.ndarray  # int32 [documents]
    text_bytes: int  # of the texts in UTF-8


@dataclass
class Skipped:
    """Lines left out for one reason, and where and how it is first met."""

    count: int
    first: str


@dataclass
class EncodedBlock:
    """A block's documents, one column a key, and the lines that were left out, by reason."""

    columns: list[Column]
    input_bytes: int
    position: int
    skipped: dict[str, Skipped] = field(default_factory=dict)


class BlockEncoder:
    """Encodes blocks with a tokenizer of its own.

    An empty text becomes a document without a sequence, with or without ``append_eod``, so that documents and lines
    correspond one to one. A list of strings becomes a document of as many sequences, empty ones left out; only the last
    gets the end-of-document token. Both are Megatron-LM's rules.
    """

    def __init__(self, settings: EncodeSettings):
        self._settings = settings
        self._tokenizer = build_tokenizer(settings.tokenizer)

    def __call__(self, block: Block) -> EncodedBlock:
        """Raises DataError, with file and line, for the first line that is invalid, unless these are to be skipped."""
        faults: list[InvalidRecord] = []
        records: list[Record] = []
        for parsed in parse_records(block, self._settings.keys):
            if isinstance(parsed, InvalidRecord):
                faults.append(parsed)
                if not self._settings.skip_invalid:
                    break
            else:
                records.append(parsed)
        columns = self._encode(records)
        if columns is None:  # at least one text has no encoding: find which, one by one
            unknown = [fault for record in records if (fault := self._encoding_fault(record))]
            faults = sorted(faults + unknown, key=lambda fault: fault.line)
            bad = {fault.line for fault in unknown}
            records = [record for record in records if record.line not in bad]
            columns = self._encode(records)
            assert columns is not None, "texts that encode one by one must encode together"
        if faults and not self._settings.skip_invalid:
            raise DataError(
                f"{faults[0].located(block)}. Each line must be one JSON object that holds the text: mend the line, or pass "
                "--skip-invalid to leave such lines out and count them."
            )
        return EncodedBlock(columns, len(block.data), block.position, _count(block, faults))

    def _encode(self, records: list[Record]) -> list[Column] | None:
        try:
            return [self._column([record.texts[k] for record in records]) for k in range(len(self._settings.keys))]
        except TokenizerError:
            return None

    def _column(self, documents: list[list[str]]) -> Column:
        texts = list(chain.from_iterable(documents))
        encoded = iter(self._tokenizer.encode_batch(texts))
        sequences: list[list[int]] = []
        document_sequences = np.zeros(len(documents), np.int32)
        for number, document in enumerate(documents):
            filled = [ids for ids in islice(encoded, len(document)) if ids]
            if filled and self._settings.append_eod:
                filled[-1].append(self._tokenizer.eod)
            sequences += filled
            document_sequences[number] = len(filled)
        lengths = np.fromiter(map(len, sequences), np.int32, len(sequences))
        tokens = np.fromiter(chain.from_iterable(sequences), np.int32, int(lengths.sum()))
        return Column(tokens, lengths, document_sequences, sum(map(_utf8_bytes, texts)))

    def _encoding_fault(self, record: Record) -> InvalidRecord | None:
        try:
            for texts in record.texts:
                self._tokenizer.encode_batch(texts)
        except TokenizerError as error:
            return InvalidRecord(record.line, "cannot be encoded", str(error))
        return None


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _count(block: Block, faults: list[InvalidRecord]) -> dict[str, Skipped]:
    skipped: dict[str, Skipped] = {}
    for fault in faults:
        skipped.setdefault(fault.reason, Skipped(0, fault.located(block))).count += 1
    return skipped


@functools.cache
def _encoder(settings: EncodeSettings) -> BlockEncoder:
    return BlockEncoder(settings)


def encode_block(settings: EncodeSettings, block: Block) -> EncodedBlock:
    """Encode ``block``; a process builds the tokenizer of ``settings`` once."""
    return _encoder(settings)(block)
