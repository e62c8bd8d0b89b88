"""From the parts of corpora and their weights to samples: the blend of a split, and the stream of a run."""

import dataclasses
import math
from types import ModuleType
from typing import NamedTuple, Sequence

from megalite.data.blend import BlendedDataset, normalized, samples_due
from megalite.data.dataset import Concatenation, Dataset, Part, Request
from megalite.data.stream import History, Reading, Stream, find_readings
from megalite.log import logger


class Mix(NamedTuple):
    """Parts of corpora and, unless they are blended by their sizes, a weight each; ``builder`` is the kind of data."""

    builder: ModuleType
    parts: Sequence[Part]
    weights: Sequence[float] | None
    request: Request


def build_samples(mix: Mix, num_samples: int) -> Dataset:
    """``num_samples`` samples at least."""
    readings, _ = find_readings(mix.parts, mix.request, ())
    return _build(mix, readings, num_samples)[0]


def build_whole(mix: Mix) -> Dataset:
    """All tokens of all parts, once; weights have no say."""
    parts = [dataclasses.replace(part, whole=True) for part in mix.parts]
    datasets = [mix.builder.build(part, None, mix.request) for part in parts]
    return datasets[0] if len(datasets) == 1 else Concatenation(datasets)


def build_stream(mix: Mix, num_samples: int, history: History | None) -> Stream:
    """The stream of a run of ``num_samples`` in all.

    If what ``history`` tells of is this very stream, it goes on; its ``fingerprint`` is then that of the history. If
    not, another mix begins where the history ends, with each corpus at its own count.
    """
    if history is None:
        return _stream(mix, num_samples, 0, ())
    same = _stream(mix, num_samples, history.start, history.at_start)
    if same.fingerprint == history.fingerprint:
        return same
    changed = _stream(mix, num_samples, history.consumed_samples, history.now)
    logger.info(f"the mix of corpora changes after {history.consumed_samples:,} samples:")
    for reading in changed.readings:
        logger.info(f"  {reading.name} " + (f"goes on after {reading.consumed:,}" if reading.consumed else "begins"))
    return changed


def _stream(mix: Mix, num_samples: int, start: int, known: Sequence[Reading]) -> Stream:
    readings, left = find_readings(mix.parts, mix.request, known)
    samples, readings = _build(mix, readings, max(1, num_samples - start))
    return Stream(samples, readings, start, left)


def _build(mix: Mix, readings: list[Reading], num_samples: int) -> tuple[Dataset, list[Reading]]:
    """The samples, and ``readings`` with all orders that they take."""
    weights, surplus = mix.weights, mix.request.data.mid_level_dataset_surplus
    if len(mix.parts) == 1:
        dataset, reading = _go_on(mix, 0, readings[0], num_samples, num_samples)
        return dataset, [reading]
    if weights is None:
        weights = [len(mix.builder.build(part, None, mix.request)) for part in mix.parts]
        if num_samples <= sum(weights):
            readings = [dataclasses.replace(r, orders=r.orders or (None,)) for r in readings]
    due = samples_due(weights, num_samples)
    built = [_go_on(mix, i, readings[i], due[i], math.ceil(due[i] * (1 + surplus))) for i in range(len(due))]
    cache = mix.request.cache_for(mix.parts[0].corpus.prefix)
    # Megatron-LM divides given weights by their sum twice. The last bits that this changes decide between equals.
    shares = weights if mix.weights is None else normalized(weights)
    blend = BlendedDataset([dataset for dataset, _ in built], shares, num_samples, cache)
    return blend, [reading for _, reading in built]


def _go_on(mix: Mix, number: int, reading: Reading, due: int, wanted: int) -> tuple[Dataset, Reading]:
    """Part ``number`` from where it has been read to, with ``due`` samples; where a further order is needed, built for
    ``wanted`` samples."""
    part, request = mix.parts[number], mix.request
    orders = [mix.builder.build(part, asked, request.for_order(i)) for i, asked in enumerate(reading.orders)]
    left = sum(len(order) for order in orders) - reading.consumed
    if left < due:
        asked = wanted - left
        orders.append(mix.builder.build(part, asked, request.for_order(len(orders))))
        reading = dataclasses.replace(reading, orders=(*reading.orders, asked))
    if len(orders) == 1 and not reading.consumed:
        return orders[0], reading
    return Concatenation(orders, reading.consumed), reading
