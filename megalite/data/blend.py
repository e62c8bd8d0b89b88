"""Weighted blends of data sets: ``--data-path W P W P ...``."""

import math
from typing import Callable, NamedTuple, Sequence

import numpy as np

from megalite.data.cache import Arrays, IndexCache
from megalite.data.dataset import Dataset, Sample, digest
from megalite.data.index_builders import build_blend
from megalite.errors import ConfigError, DataError

MAX_DATASETS = np.iinfo(np.int16).max


class Blend(NamedTuple):
    """Prefixes and, unless they are to be blended by their sizes, one weight each."""

    prefixes: tuple[str, ...]
    weights: tuple[float, ...] | None


def parse_data_path(items: Sequence[str], flag: str = "--data-path") -> Blend:
    """Read ``P``, ``P P P`` or ``W P W P``: pairs when the number is even and the first item of each pair is a number.

    Raises :class:`ConfigError` when only some of them are numbers, and for weights that are not positive and finite.
    """
    weights = [_number(item) for item in items[::2]]
    if len(items) % 2 or all(weight is None for weight in weights):
        return Blend(tuple(items), None)
    for item, weight in zip(items[::2], weights):
        if weight is None or not 0 < weight < math.inf:
            raise ConfigError(
                f"{flag} must be prefixes only, or WEIGHT PREFIX WEIGHT PREFIX ... with positive weights; given "
                f"{' '.join(items)!r}, where {item!r} is no such weight: correct it, or leave that corpus out."
            )
    return Blend(tuple(items[1::2]), tuple(weight for weight in weights if weight is not None))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def normalized(weights: Sequence[float]) -> list[float]:
    """``weights`` divided by their sum."""
    array = np.array(weights, np.float64)
    return (array / array.sum()).tolist()


def samples_due(weights: Sequence[float], num_samples: int) -> list[int]:
    """Samples that each data set contributes to a blend of ``num_samples``, rounded up."""
    return [math.ceil(num_samples * weight) for weight in normalized(weights)]


class BlendedDataset:
    """``size`` samples, each from the data set that is furthest behind its weight: greedy, not random.

    Of data set d it takes :func:`samples_due` samples at most, in their order.
    """

    def __init__(self, datasets: Sequence[Dataset], weights: Sequence[float], size: int, cache: IndexCache):
        if len(datasets) > MAX_DATASETS:
            raise DataError(
                f"a blend may have up to {MAX_DATASETS} data sets; given {len(datasets)}: merge some of them."
            )
        self.datasets = list(datasets)
        self._size = size
        shares = normalized(weights)
        self._index = cache.get(
            "blend", {"kind": "blend", "weights": shares, "size": size}, lambda: _build(shares, size)
        )
        self.fingerprint = digest([shares, [dataset.fingerprint for dataset in datasets]])

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(f"this blend has {len(self)} samples; asked for number {index}")
        return self.datasets[self._index["dataset"][index]][int(self._index["sample"][index])]

    def padding(self) -> Sample:
        return self.datasets[0].padding()

    def preparations(self) -> list[Callable[[], None]]:
        return [self._index.prepare, *(task for dataset in self.datasets for task in dataset.preparations())]

    def taken(self, begin: int, end: int) -> list[int]:
        """How many of the samples ``[begin, end)`` come from each data set."""
        return np.bincount(self._index["dataset"][begin:end], minlength=len(self.datasets)).tolist()


def _build(shares: Sequence[float], size: int) -> Arrays:
    dataset, sample = build_blend(np.array(shares), size)
    return {"dataset": dataset, "sample": sample}
