"""Our own checkpoints, as docs/checkpoint-format.md has them."""

import json
from pathlib import Path
from typing import Callable, Sequence

import torch

from megalite.checkpoint.directory import begin, publish, temporary_path, write_file
from megalite.checkpoint.index import INDEX, build_index
from megalite.checkpoint.locate import find_checkpoint
from megalite.checkpoint.piece import STATE_PREFIX, Piece
from megalite.checkpoint.shard import ShardRecord, shard_name, state_shard_name, write_shard
from megalite.checkpoint.store import CONFIG, META, Store
from megalite.config import Config
from megalite.config.cli import parse
from megalite.config.dump import to_yaml
from megalite.convert.extras import FOLDER, copy_extras, extras_of
from megalite.convert.options import ReadOptions, WriteOptions
from megalite.convert.progress import Progress
from megalite.convert.source import Source
from megalite.errors import CheckpointError
from megalite.log import logger
from megalite.state import Box

_SHARD_BYTES = 256 << 20
"""Tensors are gathered to shards of about this size: what is held in memory at a time."""
_COUNTERS = ("consumed_samples", "updated_samples", "num_updates")
_WORDS = "embedding.word.weight"


def detect(directory: Path) -> bool:
    return (directory / INDEX).is_file() or any(directory.glob("*iter_*/shard_*"))


def open_source(directory: Path, options: ReadOptions = ReadOptions()) -> "MegaliteSource":
    """The checkpoint that --load and --ckpt-step mean in training. Raises :class:`CheckpointError` if there is none."""
    found = find_checkpoint(directory, options.step)
    for warning in found.warnings:
        logger.warning(warning)
    return MegaliteSource(found.store)


class MegaliteSource(Source):
    """A checkpoint of ours."""

    def __init__(self, store: Store):
        self._store = store
        self.directory, self.meta = store.directory, store.meta
        self._names = store.names()
        if _WORDS not in self._names:
            raise CheckpointError(f"{self.directory} must hold the parameters of a language model: it lacks {_WORDS}.")
        # The flag leaves out a token that some tokenizers add: the matrix knows.
        config = parse(["--config", str(store.directory / CONFIG)])
        self.config: Config = config.replace(vocab_size=store.shape(_WORDS)[0])
        self.extras = extras_of(config, store.directory)

    def names(self) -> tuple[str, ...]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self._store.shape(name)

    def dtype(self, name: str) -> str:
        return self._store.dtype(name)

    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        self._store.read_into([Piece(name, self.shape(name), box, out)], convert=True)


def write(source: Source, directory: Path, options: WriteOptions, progress: Progress) -> None:
    """Write a checkpoint that training can load, at any layout."""
    iteration = source.meta["iteration"]
    temporary = temporary_path(directory, iteration)
    begin(temporary)
    progress.begin(sum(source.num_bytes(name) for name in source.names()))
    state = [name for name in sorted(source.names()) if name.startswith(STATE_PREFIX)]
    parameters = [name for name in sorted(source.names()) if not name.startswith(STATE_PREFIX)]
    records = _write_shards(source, parameters, lambda number: temporary / shard_name(number), progress)
    records += _write_shards(source, state, lambda number: temporary / state_shard_name(number), progress)
    meta = {**{name: 0 for name in _COUNTERS}, "loss_scaler": {}, "data_fingerprint": None, **source.meta}
    others = {
        META: write_file(temporary / META, json.dumps(meta, indent=1, sort_keys=True, allow_nan=False) + "\n"),
        CONFIG: write_file(temporary / CONFIG, to_yaml(source.config)),
    }
    copy_extras(source.extras, temporary / FOLDER)
    write_file(temporary / INDEX, build_index(records, others).to_json())
    publish(temporary)


def _write_shards(
    source: Source, names: Sequence[str], path_of: Callable[[int], Path], progress: Progress
) -> list[ShardRecord]:
    records: list[ShardRecord] = []
    waiting: list[Piece] = []
    for name in names:
        tensor = source.read(name)
        waiting.append(Piece(name, tuple(tensor.shape), Box.whole(tensor.shape), tensor))
        num_bytes = sum(piece.tensor.nbytes for piece in waiting)
        if num_bytes >= _SHARD_BYTES or name == names[-1]:
            records.append(write_shard(path_of(len(records)), waiting, checksum=True))
            progress.add(num_bytes)
            waiting = []
    return records
