"""From ``--data-path`` and its relatives to the training, validation and test data of a run."""

import math
from types import ModuleType
from typing import NamedTuple, Sequence

from megalite.config import DataConfig
from megalite.data.blend import Blend, BlendedDataset, parse_data_path, samples_due
from megalite.data.cache import content_fingerprint
from megalite.data.dataset import Dataset, Part, Request
from megalite.data.indexed import IndexedDataset
from megalite.data.sidecar import check_tokenizer
from megalite.data.split import DEFAULT_SPLIT, SPLITS, split_ranges
from megalite.errors import ConfigError
from megalite.log import logger
from megalite.plugins import load

SURPLUS = 0.005
"""Each data set of a blend is built with this share of samples more than it contributes, as in Megatron-LM: the number
decides how many epochs are shuffled together, hence the order."""


class Datasets(NamedTuple):
    """The data of each split, or None where no samples are wanted or there is nothing to take them from."""

    train: Dataset | None
    valid: Dataset | None
    test: Dataset | None


def build_datasets(request: Request, num_samples: Sequence[int], kind: str = "gpt") -> Datasets:
    """Build the data sets of ``kind`` (a file of ``datasets/``), with ``num_samples`` for train, valid and test.

    Every process of a run calls it with the same arguments; the indices are computed once per file system. A data set
    may be longer than asked for: a run uses its first ``num_samples``. The ``fingerprint`` of the training data
    identifies the stream of samples.

    Raises :class:`ConfigError` for flags that contradict each other and :class:`DataError` for unsuitable corpora. A
    validation or test split without any token is left out with a warning.
    """
    builder = load("megalite.data.datasets", kind, "the kind of data")
    sources = _sources(request)
    if num_samples[0] and not sources[0].parts:
        raise ConfigError(
            "--train-data-path must be given beside --valid-data-path and --test-data-path; given none: name the "
            "corpora to train on."
        )
    return Datasets(
        *(
            _build_split(builder, source, count, request) if count and source.parts else None
            for source, count in zip(sources, num_samples, strict=True)
        )
    )


class _Source(NamedTuple):
    """Where the samples of a split come from; without weights, by the sizes of the parts."""

    parts: list[Part]
    weights: Sequence[float] | None


class _Corpora:
    """The corpora of a run, each opened, checked and fingerprinted once."""

    def __init__(self, request: Request):
        self._vocabulary = request.vocabulary
        self._opened: dict[str, tuple[IndexedDataset, str]] = {}

    def part(self, prefix: str, split: str, begin: int = 0, end: int | None = None) -> Part:
        corpus, content = self._open(prefix)
        return Part(corpus, content, split, begin, len(corpus) if end is None else end)

    def parts(self, prefix: str, split: str) -> list[Part]:
        """The part of each split, by the shares in ``split``."""
        ranges = split_ranges(split, len(self._open(prefix)[0]))
        return [self.part(prefix, name, *bounds) for name, bounds in zip(SPLITS, ranges)]

    def _open(self, prefix: str) -> tuple[IndexedDataset, str]:
        if prefix not in self._opened:
            check_tokenizer(prefix, self._vocabulary.vocab_size, self._vocabulary.eod, self._vocabulary.fingerprint)
            corpus = IndexedDataset(prefix)
            self._opened[prefix] = corpus, content_fingerprint(corpus)
        return self._opened[prefix]


def _sources(request: Request) -> list[_Source]:
    data = request.data
    corpora = _Corpora(request)
    _check_flags(data)
    if data.data_path:
        blend = parse_data_path(data.data_path)
        by_prefix = [corpora.parts(prefix, data.split or DEFAULT_SPLIT) for prefix in blend.prefixes]
        return [_Source(list(parts), blend.weights) for parts in zip(*by_prefix)]
    sources = []
    for split in SPLITS:
        path = getattr(data, f"{split}_data_path")
        blend = parse_data_path(path, f"--{split}-data-path") if path else Blend((), None)
        sources.append(_Source([corpora.part(prefix, split) for prefix in blend.prefixes], blend.weights))
    return sources


def _check_flags(data: DataConfig) -> None:
    own_paths = [name for name in (f"{split}_data_path" for split in SPLITS) if getattr(data, name)]
    if bool(data.data_path) == bool(own_paths) or (data.split and own_paths):
        given = [name for name in ("data_path", "split") if getattr(data, name)] + own_paths
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(
            "data must come from --data-path, divided by --split, or from --train-data-path, --valid-data-path and "
            f"--test-data-path; given {flags or 'none of them'}: choose one way."
        )


def _build_split(builder: ModuleType, source: _Source, count: int, request: Request) -> Dataset | None:
    parts, weights = _without_empty(source)
    if not parts:
        return None
    if len(parts) == 1:
        return builder.build(parts[0], count, request)
    datasets = None
    if weights is None:
        datasets = [builder.build(part, None, request) for part in parts]
        weights = [len(dataset) for dataset in datasets]
    if datasets is None or sum(weights) < count:
        sizes = [math.ceil(due * (1 + SURPLUS)) for due in samples_due(weights, count)]
        datasets = [builder.build(part, size, request) for part, size in zip(parts, sizes)]
    return BlendedDataset(datasets, weights, count, request.cache_for(parts[0].corpus.prefix))


def _without_empty(source: _Source) -> _Source:
    """Validation and test go on without corpora whose share of tokens is zero; in training that is an error."""
    filled = [number for number, part in enumerate(source.parts) if part.num_tokens or part.split == "train"]
    for number, part in enumerate(source.parts):
        if number not in filled:
            # At info level, for every rank finds the same.
            logger.info(f"warning: the {part} holds no tokens and is left out: give more data or another --split.")
    weights = None if source.weights is None else [source.weights[number] for number in filled]
    return _Source([source.parts[number] for number in filled], weights)
