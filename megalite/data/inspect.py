"""Body of ``tools/inspect_dataset.py``: what a corpus holds, and whether its files are whole."""

import json
from dataclasses import dataclass, field
from typing import Iterator, Sequence

import numpy as np
import tyro

from megalite.data.indexed import IndexedDataset, bin_path
from megalite.data.sidecar import Sidecar, check_tokenizer, read_sidecar
from megalite.data.tokenizers import Tokenizer, TokenizerOptions, build_tokenizer
from megalite.errors import DataError
from megalite.log import echo, setup_logging

CHUNK = 1 << 22
"""How many tokens or documents are looked at together."""


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Show what a corpus holds, single documents of it, and whether its files are whole."""

    prefix: tyro.conf.Positional[str]
    """Prefix of the corpus: its files without .bin and .idx."""
    document: tuple[int, ...] = ()
    """Numbers of documents to show, from 0 on; -1 is the last. As text where the tokenizer is given, else as ids."""
    check: bool = False
    """Read all of the corpus and compare: lengths, offsets, document borders, the range of the ids, and what the .json
    beside it says. Exit status 2 if something is wrong."""
    tokenizer: TokenizerOptions = field(default_factory=TokenizerOptions)


def main(arguments: Sequence[str] | None = None) -> None:
    """Body of the tool; ``arguments`` default to the command line."""
    setup_logging()
    inspect_dataset(
        tyro.cli(InspectOptions, args=arguments, config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff))
    )


def inspect_dataset(options: InspectOptions) -> None:
    """Show what ``options`` ask for. Raises DataError for a corpus that is damaged or of another tokenizer."""
    dataset, sidecar = IndexedDataset(options.prefix), read_sidecar(options.prefix)
    tokenizer = None
    if options.tokenizer.tokenizer_type is not None:
        tokenizer = build_tokenizer(options.tokenizer)
        check_tokenizer(options.prefix, tokenizer.vocab_size, tokenizer.eod, tokenizer.fingerprint)
    for line in (*_statistics(dataset), *_provenance(sidecar)):
        echo(line)
    for number in options.document:
        for line in _document(dataset, number, tokenizer):
            echo(line)
    if options.check:
        vocab_size = tokenizer.vocab_size if tokenizer else sidecar.vocab_size if sidecar else None
        check_corpus(dataset, sidecar, vocab_size)
        bound = f"below {vocab_size}" if vocab_size else "not negative (the vocabulary is not known)"
        echo(f"intact: lengths, offsets and documents fit the files, and all ids are {bound}")


def check_corpus(dataset: IndexedDataset, sidecar: Sidecar | None, vocab_size: int | None) -> None:
    """Read a whole corpus in pieces and compare everything that can be. Raises DataError for the first fault.

    ``vocab_size`` bounds the ids; ``sidecar`` says how many documents and tokens there are and how documents end.
    """
    dataset.validate()
    _check_ids(dataset, vocab_size)
    if sidecar is None:
        return
    found = {"num_documents": dataset.num_documents, "num_tokens": dataset.num_tokens(0, len(dataset))}
    for name, count in found.items():
        if getattr(sidecar, name) != count:
            raise DataError(
                f"{dataset.prefix}.json must describe the corpus beside it; it says {name} {getattr(sidecar, name)}, "
                f"the corpus has {count}: the files are from different runs, write the corpus again."
            )
    if sidecar.append_eod:
        _check_document_ends(dataset, sidecar.eod)


def document_lengths(dataset: IndexedDataset) -> np.ndarray:
    """Tokens of each document, int64 ``[documents]``."""
    ends = np.zeros(len(dataset) + 1, np.int64)
    np.cumsum(dataset.sequence_lengths, out=ends[1:])
    return np.diff(ends[dataset.document_indices])


def _statistics(dataset: IndexedDataset) -> Iterator[str]:
    num_tokens = dataset.num_tokens(0, len(dataset))
    yield (
        f"{dataset.prefix}: {dataset.num_documents:,} documents, {len(dataset):,} sequences, {num_tokens:,} tokens "
        f"({dataset.dtype.name}, {num_tokens * dataset.dtype.itemsize:,} bytes)"
    )
    lengths = document_lengths(dataset)
    if len(lengths):
        least, median, p99, most = np.percentile(lengths, [0, 50, 99, 100], method="lower")
        yield (
            f"tokens a document: {least:,} to {most:,}, mean {lengths.mean():,.1f}, median {median:,}, 99 % have at "
            f"most {p99:,}; {np.count_nonzero(lengths == 0):,} documents are empty"
        )
    if dataset.sequence_modes is not None:
        modes, counts = np.unique(dataset.sequence_modes, return_counts=True)
        yield "sequences by mode: " + ", ".join(f"{mode}: {count:,}" for mode, count in zip(modes, counts))


def _provenance(sidecar: Sidecar | None) -> Iterator[str]:
    if sidecar is None:
        yield "no .json beside it: which tokenizer made it is not known"
        return
    ends = (
        f"every document ends with {sidecar.eod}" if sidecar.append_eod else "nothing was put at the ends of documents"
    )
    yield f"made by the tokenizer {sidecar.tokenizer[:16]} of {sidecar.vocab_size:,} ids; {ends}"
    yield "".join(f"  {name}: {json.dumps(value)}" for name, value in sidecar.summary.items())


def _document(dataset: IndexedDataset, number: int, tokenizer: Tokenizer | None) -> Iterator[str]:
    index = number + dataset.num_documents if number < 0 else number
    if not 0 <= index < dataset.num_documents:
        raise DataError(f"--document must be below {dataset.num_documents}, the number of documents; given {number}.")
    first, end = (int(border) for border in dataset.document_indices[index : index + 2])
    yield f"document {index}: {end - first} sequences, {dataset.num_tokens(first, end):,} tokens"
    for sequence in range(first, end):
        ids = dataset[sequence].tolist()
        shown = tokenizer.decode(ids) if tokenizer else ids
        yield f"  {sequence}: {json.dumps(shown, ensure_ascii=False)}"


def _check_ids(dataset: IndexedDataset, vocab_size: int | None) -> None:
    position = 0
    with open(bin_path(dataset.prefix), "rb") as file:
        while (ids := np.fromfile(file, dataset.dtype, CHUNK)).size:
            wrong = (ids < 0) if vocab_size is None else (ids < 0) | (ids >= vocab_size)
            if wrong.any():
                first = int(wrong.argmax())
                sequence, offset = _place(dataset, position + first)
                limit = "0 or more" if vocab_size is None else f"0 to {vocab_size - 1}"
                raise DataError(
                    f"ids of {dataset.prefix} must be {limit}; token {offset} of sequence {sequence} is {ids[first]}: "
                    "the file is damaged, or of another tokenizer."
                )
            position += len(ids)


def _place(dataset: IndexedDataset, position: int) -> tuple[int, int]:
    """Sequence, and token within it, of the token at ``position`` of the whole corpus."""
    ends = np.cumsum(dataset.sequence_lengths, dtype=np.int64)
    sequence = int(np.searchsorted(ends, position, side="right"))
    return sequence, position - int(ends[sequence]) + int(dataset.sequence_lengths[sequence])


def _check_document_ends(dataset: IndexedDataset, eod: int) -> None:
    lengths = document_lengths(dataset)
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return
    last = np.cumsum(lengths)[filled] - 1
    tokens = np.memmap(bin_path(dataset.prefix), dataset.dtype, mode="r")
    for start in range(0, len(last), CHUNK):
        wrong = np.flatnonzero(tokens[last[start : start + CHUNK]] != eod)
        if len(wrong):
            at = start + int(wrong[0])
            raise DataError(
                f"every document of {dataset.prefix} must end with {eod}, as its .json says; document {filled[at]} "
                f"ends with {tokens[last[at]]}: the files are from different runs, write the corpus again."
            )
