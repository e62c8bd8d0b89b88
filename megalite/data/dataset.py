"""What every kind of training data offers, and what a kind is given to build it.

The kinds are the files of ``datasets/``, each with ``build(part, num_samples, request) -> Dataset``.
"""

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Callable, Protocol, Sequence

import numpy as np

from megalite.config import DataConfig
from megalite.data.cache import IndexCache
from megalite.data.indexed import IndexedDataset

Sample = dict[str, np.ndarray]

MAX_SEED = (1 << 63) - 1


class Vocabulary(Protocol):
    """What data sets must know of a tokenizer: number of ids, end-of-document id if there is one, fingerprint."""

    vocab_size: int
    eod: int | None
    fingerprint: str


class Dataset(Protocol):
    """Samples by number, each a dict of arrays of the same names, shapes and dtypes.

    ``fingerprint`` changes whenever any sample or their order does. It and the length cost nothing; what reading needs
    besides is computed by ``preparations``, or with the first sample.
    """

    fingerprint: str

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def padding(self) -> Sample:
        """A sample that takes no part in the loss, to fill up an incomplete batch."""
        ...

    def preparations(self) -> list[Callable[[], None]]:
        """What is to be computed before samples are read, in any order and in any thread."""
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
    whole: bool = False
    """One epoch is read to its last token, in a sample that may be incomplete."""

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

    def for_order(self, number: int) -> "Request":
        """The request for the ``number``-th order in which a data set is read; 0 is the one it begins with."""
        return dataclasses.replace(self, seed=(self.seed + number) % (MAX_SEED + 1))


def digest(description: Any) -> str:
    """SHA-256 of anything that JSON takes."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


class Concatenation:
    """Data sets one after another, without the first ``skip`` samples."""

    def __init__(self, datasets: Sequence[Dataset], skip: int = 0):
        self.datasets, self.skip = list(datasets), skip
        self._ends = np.cumsum([len(dataset) for dataset in datasets], dtype=np.int64)
        self.fingerprint = digest(["concatenation", skip, [dataset.fingerprint for dataset in datasets]])

    def __len__(self) -> int:
        return int(self._ends[-1]) - self.skip

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(f"these data sets have {len(self)} samples; asked for number {index}")
        number = int(np.searchsorted(self._ends, index + self.skip, side="right"))
        dataset = self.datasets[number]
        return dataset[index + self.skip - int(self._ends[number]) + len(dataset)]

    def padding(self) -> Sample:
        return self.datasets[0].padding()

    def preparations(self) -> list[Callable[[], None]]:
        return [task for dataset in self.datasets for task in dataset.preparations()]
