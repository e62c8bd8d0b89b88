"""Small corpora for tests."""

import json
from pathlib import Path
from typing import Iterable, Sequence

from megalite.config import DataConfig
from megalite.data.dataset import Dataset, Request
from megalite.data.indexed_builder import IndexedDatasetBuilder

VECTORS = json.loads((Path(__file__).parent.parent / "golden" / "megatron_dataset_vectors.json").read_text())
EOD = 99


class FakeVocabulary:
    """As much of a tokenizer as data sets look at, in which ids are below 100 in name only."""

    vocab_size, eod, fingerprint = 100, EOD, "0123"


def write_corpus(prefix, documents: Iterable[Sequence[int]], dtype="uint16", sidecar=None) -> str:
    """A corpus of one sequence a document."""
    with IndexedDatasetBuilder(prefix, dtype) as builder:
        for document in documents:
            builder.add_document(document, [len(document)])
        builder.finalize(sidecar)
    return str(prefix)


def numbered(lengths: Iterable[int]) -> list[list[int]]:
    """Documents of these lengths whose ids count up through the whole corpus, so that each token is known by its id."""
    documents, first = [], 0
    for length in lengths:
        documents.append(list(range(first, first + length)))
        first += length
    return documents


def request(seq_length=4, seed=1234, vocabulary=None, **data) -> Request:
    return Request(seq_length, seed, DataConfig(**data), vocabulary or FakeVocabulary())


def prepared(dataset: Dataset) -> Dataset:
    """``dataset`` with all that it computes before the first sample."""
    for task in dataset.preparations():
        task()
    return dataset
