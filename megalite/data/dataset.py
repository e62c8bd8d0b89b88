"""What every kind of training data offers, and what a kind is given to build it.

The kinds are the files of ``datasets/``, each with ``build(part, num_samples, request) -> Dataset``.
"""

import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from megalite.config import DataConfig
from megalite.data.cache import IndexCache
from megalite.data.indexed import IndexedDataset

Sample = dict[str, np.ndarray]


class Vocabulary(Protocol):
    """What data sets must know of a tokenizer: number of ids, end-of-document id if there is one, fingerprint."""

    vocab_size: int
    eod: int | None
    fingerprint: str


class Dataset(Protocol):
    """Samples by number, each a dict of arrays of the same names, shapes and dtypes.

    ``fingerprint`` changes whenever any sample or their order does.
    """

    fingerprint: str

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def padding(self) -> Sample:
        """A sample that takes no part in the loss, to fill up an incomplete batch."""
        ...


@dataclass(frozen=True)
class Part:
    """The sequences ``[begin, end)`` of a corpus, which serve one split."""

    corpus: IndexedDataset
    content: str
    """Fingerprint of the corpus."""
    split: str
    begin: int
    end: int

    @property
    def num_tokens(self) -> int:
        return self.corpus.num_tokens(self.begin, self.end)

    def __str__(self) -> str:
        return f"{self.split} split of {self.corpus.prefix} (sequences {self.begin}..{self.end} of {len(self.corpus)})"


@dataclass(frozen=True)
class Request:
    """What all data sets of a run share."""

    seq_length: int
    seed: int
    data: DataConfig
    vocabulary: Vocabulary

    def cache_for(self, prefix: str) -> IndexCache:
        """Where indices over the corpus ``prefix`` are kept."""
        return IndexCache(self.data.data_cache_path or os.path.join(os.path.dirname(prefix) or ".", "cache"))
