"""Checkpoints of Megatron-LM's ``torch`` format: ``mp_rank_TT[_PPP]/model_optim_rng.pt``, names of Megatron Core."""

import os
from pathlib import Path
from typing import Any

import torch

from megalite.checkpoint.directory import TRACKER, iteration_name, sync_directory, write_file
from megalite.checkpoint.piece import STATE_PREFIX
from megalite.checkpoint.shard import dtype_name
from megalite.config import ModelConfig
from megalite.convert.extras import CONFIG_JSON, FOLDER, copy_extras, extras_in
from megalite.convert.layout import Layout
from megalite.convert.megatron.arguments import arguments_from, config_from, counters
from megalite.convert.megatron.files import FILE, RankFile, find_ranks
from megalite.convert.megatron.fit import check_fit
from megalite.convert.megatron.layout import Grid, RankKey, grid_of, model_layout, rank_directory, with_optimizer
from megalite.convert.megatron.optimizer import MAIN, SLOTS, group_rates, read_state, scheduler_state, write_state
from megalite.convert.options import ReadOptions, WriteOptions
from megalite.convert.progress import Progress
from megalite.convert.source import Source
from megalite.errors import CheckpointError, ConfigError
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
        if sum(grid.layers) != self.config.model.num_layers:
            raise CheckpointError(
                f"{where}: args.num_layers ({self.config.model.num_layers}) must be the number of layers in the files "
                f"({sum(grid.layers)})."
            )
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
        found: dict[RankKey, torch.Tensor] = {}
        for file in self._files.values():
            shapes = {key: table.foreign_shapes[key] for key in file.tensors}
            own, self._num_updates = read_state(file, shapes, stages)
            found.update(own)
        self._tensors.update(found)
        return tuple(slot for slot in (*SLOTS, MAIN) if any(key.slot == slot for key in found))


def write(source: Source, directory: Path, options: WriteOptions, progress: Progress) -> None:
    """Write the files of all ranks. The state of the random numbers has no counterpart here and is left out."""
    model, slots = source.config.model, _slots(source)
    grid = _grid(model, options)
    padded = model.padded_vocab_size(grid.tp)
    table = with_optimizer(model_layout(model, grid, padded), slots)
    progress.begin(sum(_num_bytes(source, table, key) for key in table.foreign_shapes))
    arguments = arguments_from(source.config, grid, padded, source.meta.get("consumed_samples", 0))
    iteration = source.meta["iteration"]
    # Megatron-LM takes no iteration 0; what has not been trained by it is a release.
    name = iteration_name(iteration) if iteration else "release"
    for tp, pp in grid.ranks():
        content = {"args": arguments, "checkpoint_version": 3.0, "iteration": iteration}
        content.update(_rank_content(source, table, (tp, pp), slots))
        path = directory / name / rank_directory(tp, pp, grid.pp) / FILE
        path.parent.mkdir(parents=True)
        with open(path, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        progress.add(
            sum(_num_bytes(source, table, key) for key in table.foreign_shapes if (key.tp, key.pp) == (tp, pp))
        )
    copy_extras(source.extras, directory / name / FOLDER)
    sync_directory(directory / name)
    write_file(directory / TRACKER, f"{iteration if iteration else name}\n")


def _num_bytes(source: Source, table: Layout, key: RankKey) -> int:
    return torch.Size(table.foreign_shapes[key]).numel() * getattr(torch, source.dtype(table.names_in(key)[0])).itemsize


def _slots(source: Source) -> tuple[str, ...]:
    """The optimizer's slots in a source, all of which must be Adam's."""
    found = {name.removeprefix(STATE_PREFIX).split(".")[0] for name in source.names() if name.startswith(STATE_PREFIX)}
    if found and found - {MAIN} != set(SLOTS):
        raise ConfigError(
            f"a Megatron-LM checkpoint holds the optimizer state of adam, {' and '.join(SLOTS)}; this one has "
            f"{', '.join(sorted(found))}: add --drop-optimizer."
        )
    return tuple(slot for slot in (*SLOTS, MAIN) if slot in found)


def _grid(model: ModelConfig, options: WriteOptions) -> Grid:
    tp, pp, virtual = options.tensor_parallel_size, options.pipeline_parallel_size, options.virtual_stages
    problems = [
        f"{name} ({value}) must be divisible by {size}"
        for name, value, size in (
            ("num_query_groups", model.query_groups, tp),
            ("num_attention_heads", model.num_attention_heads, tp),
            ("ffn_hidden_size", model.ffn_size, tp),
            ("num_layers", model.num_layers, pp * virtual),
        )
        if value % size
    ]
    if model.relu:
        problems.append("Megatron-LM has no flag for the activation relu")
    if problems:
        raise ConfigError(
            f"the model cannot be written for {tp} x {pp} x {virtual} (tensor x pipeline x virtual): "
            f"{'; '.join(problems)}."
        )
    layers = (model.num_layers // (pp * virtual),) * (pp * virtual)
    return Grid(tp, pp, layers, options.transformer_impl)


def _rank_content(source: Source, table: Layout, rank: tuple[int, int], slots: tuple[str, ...]) -> dict[str, Any]:
    """The model's chunks and the optimizer of one rank."""
    keys = [key for key in table.foreign_shapes if (key.tp, key.pp) == rank and key.slot is None]
    chunks = sorted({key.chunk for key in keys})
    names = {chunk: "model" if len(chunks) == 1 else f"model{chunk}" for chunk in chunks}
    content: dict[str, Any] = {name: {} for name in names.values()}
    for key in keys:
        content[names[key.chunk]][key.name] = table.make_foreign(key, source.read)
    if slots:
        shapes = {key: table.foreign_shapes[key] for key in keys}
        updates = source.meta.get("num_updates", 0)
        rates = group_rates(source.config.optimizer)
        state = write_state(shapes, slots, lambda key: table.make_foreign(key, source.read), updates, rates)
        scaler = source.meta.get("loss_scaler", {})
        if scaler:
            tracked = {"growth_tracker": scaler["finite_steps"], "hysteresis_tracker": scaler["tolerance"]}
            state["grad_scaler"] = {"scale": torch.tensor([scaler["scale"]]), **tracked}
        content["optimizer"] = state
        schedule = scheduler_state(source.config, source.meta.get("updated_samples", 0))
        if schedule is not None:
            content["opt_param_scheduler"] = schedule
    return content
