"""Checkpoints of Megatron-LM's ``torch`` format: ``mp_rank_TT[_PPP]/model_optim_rng.pt``, names of Megatron Core."""

import os
from pathlib import Path
from typing import Any

import torch

from megalite.checkpoint.directory import TRACKER, iteration_name, sync_directory, write_file
from megalite.checkpoint.shard import dtype_name
from megalite.convert.extras import CONFIG_JSON, FOLDER, copy_extras, extras_in
from megalite.convert.layout import Layout
from megalite.convert.megatron.arguments import config_from, counters
from megalite.convert.megatron.distributed import MAIN
from megalite.convert.megatron.files import RankFile, find_ranks
from megalite.convert.megatron.fit import check_fit, check_num_layers
from megalite.convert.megatron.layout import RankKey, grid_of, model_layout, rank_directory, with_optimizer
from megalite.convert.megatron.optimizer import read_state
from megalite.convert.megatron.writer import RankWriter
from megalite.convert.options import ReadOptions, WriteOptions
from megalite.convert.progress import Progress
from megalite.convert.source import Source
from megalite.state import Box


def detect(directory: Path) -> bool:
    return any(directory.glob("mp_rank_*")) or any(directory.glob("*/mp_rank_*"))


def open_source(directory: Path, options: ReadOptions = ReadOptions()) -> "MegatronSource":
    """Read a checkpoint. Raises :class:`CheckpointError` that names what megalite cannot honour, or what is damaged."""
    return MegatronSource(directory, options)


class MegatronSource(Source):
    """The files of all ranks, as one model."""

    def __init__(self, directory: Path, options: ReadOptions):
        ranks = find_ranks(directory, options.step)
        self.directory = ranks.directory
        self._files = {
            (tp, pp): RankFile(ranks.file(tp, pp), tp, pp) for pp in range(ranks.pp) for tp in range(ranks.tp)
        }
        first = self._files[0, 0]
        content, where = first.content, str(first.path)
        self.config, padded = config_from(content["args"], options.vocab_size, where)
        self._tensors = {key: tensor for file in self._files.values() for key, tensor in file.tensors.items()}
        grid = grid_of(self._tensors, ranks.tp, ranks.pp)
        check_num_layers(self.config.model.num_layers, grid, where)
        table = model_layout(self.config.model, grid, padded)
        found = {key: tuple(tensor.shape) for key, tensor in self._tensors.items()}
        check_fit(self.directory, table.foreign_shapes, found)
        self._num_updates = 0
        reads_state = options.with_optimizer and "optimizer" in content
        slots = self._read_optimizer(table, ranks.pp) if reads_state else ()
        self._layout = with_optimizer(table, slots)
        self.meta = counters(content, self._num_updates)
        self.extras = extras_in(self.directory / FOLDER, also=[CONFIG_JSON])

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._layout.shapes))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._layout.shapes[name]

    def dtype(self, name: str) -> str:
        return dtype_name(self._tensors[self._layout.sources(name)[0].key].dtype)

    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        self._layout.fill(name, box, out, self._tensors.__getitem__)

    def _read_optimizer(self, table: Layout, stages: int) -> tuple[str, ...]:
        """Add the optimizer's tensors; returns the slots that there are."""
        dtypes = {tensor.dtype for tensor in self._tensors.values()}
        found: dict[RankKey, torch.Tensor] = {}
        for file in self._files.values():
            shapes = {key: table.foreign_shapes[key] for key in file.tensors}
            own, self._num_updates = read_state(file, shapes, stages)
            found.update(own)
        self._tensors.update(found)
        slots = {key.slot for key in found}
        if dtypes == {torch.float32}:  # Main parameters are then the parameters once more.
            slots.discard(MAIN)
        return tuple(sorted(slots))


def write(source: Source, directory: Path, options: WriteOptions, progress: Progress) -> None:
    """Write the files of all ranks. The state of the random numbers has no counterpart here and is left out."""
    writer = RankWriter(source, options)
    ranks = list(writer.grid.ranks())
    progress.begin(sum(writer.num_bytes(key) for rank in ranks for key in writer.keys(rank)))
    iteration = source.meta["iteration"]
    # Megatron-LM takes no iteration 0; what has not been trained by it is a release.
    name = iteration_name(iteration) if iteration else "release"
    for rank in ranks:
        folder = directory / name / rank_directory(*rank, writer.grid.pp)
        folder.mkdir(parents=True)
        for file, content in writer.files(rank).items():
            _save(content, folder / file)
        progress.add(sum(map(writer.num_bytes, writer.keys(rank))))
    copy_extras(source.extras, directory / name / FOLDER)
    sync_directory(directory / name)
    write_file(directory / TRACKER, f"{iteration if iteration else name}\n")


def _save(content: Any, path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
