"""Shall every rank of a tensor-parallel group read its micro-batches, or one of them read and send them to the others?

Two processes of this host, joined by gloo, need the same micro-batches. Each round is a number of steps in which all
read (what megalite does), or one reads and broadcasts, each rank reading ahead by threads where it reads at all. Beside
it, how fast the loader is by itself.

    python -m benchmarks.loader
"""

import argparse
import functools
import tempfile
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.data_index import IntegerVocabulary
from benchmarks.paired import race, table
from megalite.config import DataConfig
from megalite.data.build import Wanted, build_datasets
from megalite.data.dataset import Dataset, Request
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.loader import Batch, BatchLoader
from megalite.log import echo, run_main

FIELDS = ("labels", "loss_mask", "position_ids", "tokens")
STEPS, MICROBATCHES = 20, 4
DTYPES = {"loss_mask": torch.float32}


def write_corpus(prefix: Path, num_tokens: int) -> None:
    """Documents of some 500 tokens each."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 1000, num_tokens // 500)
    with IndexedDatasetBuilder(prefix, "uint16") as builder:
        builder.add_documents(random.integers(0, 65000, lengths.sum()), lengths, np.ones(len(lengths), int))
        builder.finalize()


def open_data(prefix: str, seq_length: int, num_samples: int) -> Dataset:
    """The samples of the corpus, their indices cached."""
    data = DataConfig(data_path=(prefix,), split="1")
    train = build_datasets(Request(seq_length, 1234, data, IntegerVocabulary()), Wanted(num_samples)).train
    for task in train.preparations():
        task()
    return train


def all_read(prefix: str, shape: tuple[int, int], fields: Sequence[str], rank: int, world: int) -> Callable[[], Any]:
    """Every rank reads; a barrier a step stands for the communication of training."""
    return functools.partial(_steps, _loader(prefix, shape, fields), shape, lambda batches: None, world)


def one_reads(prefix: str, shape: tuple[int, int], fields: Sequence[str], rank: int, world: int) -> Callable[[], Any]:
    """Rank 0 reads and broadcasts; the others receive."""
    loader = _loader(prefix, shape, fields) if rank == 0 else None
    return functools.partial(_steps, loader, shape, functools.partial(_share, shape, fields), world)


def _loader(prefix: str, shape: tuple[int, int], fields: Sequence[str]) -> BatchLoader:
    num_samples = shape[0] * MICROBATCHES * STEPS
    dataset = open_data(prefix, shape[1], num_samples)
    return BatchLoader(dataset, num_samples, fields, torch.device("cpu"), num_workers=2)


def _steps(loader: BatchLoader | None, shape: tuple[int, int], share: Callable, world: int) -> None:
    for step in range(STEPS):
        batches = None
        if loader is not None:
            batches = loader.load(_numbers(shape, step), _numbers(shape, (step + 1) % STEPS))
        share(batches)
        if world > 1:
            dist.barrier()


def _numbers(shape: tuple[int, int], step: int) -> list[range]:
    first = step * MICROBATCHES
    return [range((first + k) * shape[0], (first + k + 1) * shape[0]) for k in range(MICROBATCHES)]


def _share(shape: tuple[int, int], fields: Sequence[str], batches: list[Batch] | None) -> None:
    for number in range(MICROBATCHES):
        for name in fields:
            dtype = DTYPES.get(name, torch.int64)
            dist.broadcast(torch.empty(shape, dtype=dtype) if batches is None else batches[number][name], 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=20_000_000, help="of the corpus")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        prefix = str(Path(directory) / "corpus")
        write_corpus(Path(prefix), options.tokens)
        for shape in ((4, 2048), (1, 8192), (16, 512)):
            samples = shape[0] * MICROBATCHES * STEPS
            open_data(prefix, shape[1], samples)
            ways = {"all read": all_read, "one reads": one_reads}
            contestants = {name: functools.partial(way, prefix, shape, FIELDS) for name, way in ways.items()}
            echo(f"\nmicro-batches of {shape[0]} x {shape[1]}, two ranks\n")
            results = race(contestants, options.rounds, threads=1, world_size=2)
            echo(table(results, "one reads", "tokens", samples * shape[1]))
        alone = race({"one process": contestants["all read"]}, options.rounds, threads=1)
        echo("\none process alone\n")
        echo(table(alone, "one process", "tokens", samples * shape[1]))


if __name__ == "__main__":
    run_main(main)
