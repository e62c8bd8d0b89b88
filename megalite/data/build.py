"""From ``--data-path`` and its relatives to the training, validation and test data of a run."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from megalite.data.blend import Blend
from megalite.data.content import content_fingerprint
from megalite.data.dataset import Dataset, Part, Request
from megalite.data.indexed import IndexedDataset
from megalite.data.mix import Mix, build_samples, build_stream, build_whole
from megalite.data.sidecar import check_tokenizer
from megalite.data.sources import Sources, find_sources, validation_sets
from megalite.data.split import DEFAULT_SPLIT, SPLITS, split_ranges
from megalite.data.stream import History, Stream
from megalite.errors import ConfigError
from megalite.log import logger
from megalite.plugins import load


class HeldOut(NamedTuple):
    """A validation or test set: its samples, of which the first ``num_samples`` are read, and their corpora."""

    dataset: Dataset
    num_samples: int
    blend: Blend


class Wanted(NamedTuple):
    """Samples that a run reads: of training up to its end, of each validation set (None: all), of the test set."""

    train: int
    valid: int | None = 0
    test: int = 0


class Datasets(NamedTuple):
    """The data of a run: the training stream, or None where no samples are wanted, and the held-out sets by name.

    The names are "validation" and "test", or "validation NAME" for each of several validation sets.
    """

    train: Stream | None
    held_out: dict[str, HeldOut]

    def prepare(self, num_threads: int = 1) -> None:
        """Compute all indices that are not cached yet. Every process calls it; one a file system does the work."""
        datasets = [] if self.train is None else [self.train]
        datasets += [held_out.dataset for held_out in self.held_out.values()]
        tasks = [task for dataset in datasets for task in dataset.preparations()]
        pool = ThreadPoolExecutor(num_threads, "megalite-index")
        try:
            list(pool.map(lambda task: task(), tasks))
        finally:
            pool.shutdown(cancel_futures=True)  # After an error the rest is not waited for.


def build_datasets(request: Request, wanted: Wanted, history: History | None = None, kind: str = "gpt") -> Datasets:
    """The data sets of ``kind`` (a file of ``datasets/``). Costs no work per document: see :meth:`Datasets.prepare`.

    Every process of a run calls it with the same arguments. A data set may be longer than asked for. ``history`` is of
    the checkpoint that a run resumes from: where its mix of corpora is another, each goes on from its own count.

    Raises :class:`ConfigError` for flags that contradict each other and :class:`DataError` for unsuitable corpora. A
    validation or test set without any token is left out with a warning.
    """
    builder = load("megalite.data.datasets", kind, "the kind of data")
    sources = find_sources(request.data)
    if wanted.train and sources.train is None:
        raise ConfigError(
            "there must be corpora to train on beside those to evaluate on; given none: add --train-data-path, or a "
            "list for train in the file of --per-split-data-args-path."
        )
    asked = _held_out_sets(request, sources, wanted)
    read = [sources.train] * bool(wanted.train) + [blend for _, blend, _ in asked.values()]
    corpora = _Corpora(request, sources, {prefix: None for blend in read for prefix in blend.prefixes})
    train = None
    if wanted.train:
        mix = Mix(builder, corpora.parts("train", sources.train), sources.train.weights, request)
        train = build_stream(mix, wanted.train, history)
    held_out = {}
    for name, (split, blend, count) in asked.items():
        parts, blend = _without_empty(corpora.parts(split, blend), blend, 2 if count is None else 1)
        if parts:
            mix = Mix(builder, parts, blend.weights, request)
            dataset = build_whole(mix) if count is None else build_samples(mix, count)
            held_out[name] = HeldOut(dataset, len(dataset) if count is None else count, blend)
    return Datasets(train, held_out)


def _held_out_sets(
    request: Request, sources: Sources, wanted: Wanted
) -> dict[str, tuple[str, Blend, int | None]]:
    """Split, corpora and number of samples of each held-out set that is named and wanted."""
    sets = {name: ("valid", blend, wanted.valid) for name, blend in validation_sets(request.data, sources).items()}
    if sources.test is not None:
        sets["test"] = ("test", sources.test, wanted.test)
    return {name: entry for name, entry in sets.items() if entry[2] != 0}


class _Corpora:
    """The corpora of a run, each opened, checked and fingerprinted once, several at a time."""

    def __init__(self, request: Request, sources: Sources, prefixes: dict[str, None]):
        self._vocabulary = request.vocabulary
        self._split = (request.data.split or DEFAULT_SPLIT) if sources.divided else None
        with ThreadPoolExecutor(request.data.num_dataset_builder_threads, "megalite-corpora") as pool:
            self._opened = dict(zip(prefixes, pool.map(self._open, prefixes)))

    def parts(self, split: str, blend: Blend) -> list[Part]:
        """The part of each corpus of ``blend`` that serves ``split``."""
        return [self._part(prefix, split) for prefix in blend.prefixes]

    def _part(self, prefix: str, split: str) -> Part:
        corpus, content = self._opened[prefix]
        ranges = [(0, len(corpus))] * len(SPLITS) if self._split is None else split_ranges(self._split, len(corpus))
        return Part(corpus, content, split, *ranges[SPLITS.index(split)])

    def _open(self, prefix: str) -> tuple[IndexedDataset, str]:
        check_tokenizer(prefix, self._vocabulary.vocab_size, self._vocabulary.eod, self._vocabulary.fingerprint)
        corpus = IndexedDataset(prefix)
        return corpus, content_fingerprint(corpus)


def _without_empty(parts: list[Part], blend: Blend, least: int) -> tuple[list[Part], Blend]:
    """Evaluation goes on without corpora whose share has fewer than ``least`` tokens; in training that is an error."""
    filled = [number for number, part in enumerate(parts) if part.num_tokens >= least]
    for part in parts:
        if part.num_tokens < least:
            # At info level, for every rank finds the same.
            tokens = f"holds {part.num_tokens or 'no'} token{'' if part.num_tokens == 1 else 's'}"
            logger.info(f"warning: the {part} {tokens} and is left out: give more data or another --split.")
    weights = None if blend.weights is None else tuple(blend.weights[number] for number in filled)
    return [parts[number] for number in filled], Blend(tuple(blend.prefixes[number] for number in filled), weights)
