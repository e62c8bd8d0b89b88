"""Checkpoints of Megatron-LM's ``torch_dist`` format, which are read: one tensor for all layers, in chunks of ranks."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

import torch

from megalite.checkpoint.shard import dtype_name
from megalite.convert.distcp import METADATA, ChunkedDirectory, ChunkedTensor
from megalite.convert.extras import CONFIG_JSON, FOLDER, extras_in
from megalite.convert.megatron.arguments import config_from, counters
from megalite.convert.megatron.distributed import DISTRIBUTED_SLOTS, MAIN
from megalite.convert.megatron.files import known_types, tracked_name
from megalite.convert.megatron.fit import check_fit, check_num_layers
from megalite.convert.megatron.layout import RankKey, grid_of, model_layout, with_optimizer
from megalite.convert.megatron.optimizer import num_updates
from megalite.convert.options import ReadOptions
from megalite.convert.source import Source
from megalite.convert.tensors import load_pickle
from megalite.errors import CheckpointError
from megalite.state import Box

_COMMON = "common.pt"
_COMMON_OBJECT = "common_state/"
"""Begins the name of the object that takes the place of ``common.pt`` since Megatron Core 0.19."""
_STACKED = re.compile(r"decoder\.layers\.(?!\d)(.+)")
"""Names of tensors of all layers; where a number follows it is one layer's."""
_STATE = re.compile(r"optimizer\.state\.(exp_avg|exp_avg_sq|fp32_param|param)\.(.+)")
_SLOT_NAMES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "fp32_param": MAIN, "param": MAIN}


def detect(directory: Path) -> bool:
    return (directory / METADATA).is_file() or any(directory.glob(f"*/{METADATA}"))


def open_source(directory: Path, options: ReadOptions = ReadOptions()) -> "TorchDistSource":
    """Read a checkpoint. Raises :class:`CheckpointError` that names what megalite cannot honour, or what is damaged."""
    itself = options.step is None and (directory / METADATA).is_file()
    chosen = directory if itself else directory / tracked_name(directory, options.step)
    if not (chosen / METADATA).is_file():
        raise CheckpointError(f"{chosen} must hold {METADATA}, which is written last: the checkpoint is not complete.")
    return TorchDistSource(chosen, options)


class TorchDistSource(Source):
    """The tensors of all ranks under our names. Nothing is read before it is asked for."""

    def __init__(self, directory: Path, options: ReadOptions):
        self.directory = directory
        self._chunks = ChunkedDirectory(directory)
        content = _common(directory, self._chunks)
        self.config, padded = config_from(content["args"], options.vocab_size, str(directory))
        self._places = _places(self._chunks.tensors, options.with_optimizer)
        parameters = [key for key in self._places if key.slot is None]
        grid = grid_of(parameters, tp=1, pp=1)
        check_num_layers(self.config.model.num_layers, grid, str(directory))
        dtypes = {self._chunks.tensors[self._places[key].name].dtype for key in parameters}
        if dtypes == {torch.float32}:  # Main parameters are then the parameters once more.
            self._places = {key: place for key, place in self._places.items() if key.slot != MAIN}
        slots = tuple(slot for slot in DISTRIBUTED_SLOTS if any(key.slot == slot for key in self._places))
        self._layout = with_optimizer(model_layout(self.config.model, grid, padded), slots)
        found = {key: self._box(place).extent[place.num_leading :] for key, place in self._places.items()}
        check_fit(directory, self._layout.foreign_shapes, found)
        self.meta = counters(content, num_updates(content.get("optimizer", {})) if slots else 0)
        self.extras = extras_in(directory / FOLDER, also=[CONFIG_JSON])

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._layout.shapes))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._layout.shapes[name]

    def dtype(self, name: str) -> str:
        return dtype_name(self._chunks.tensors[self._places[self._layout.sources(name)[0].key].name].dtype)

    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        self._layout.fill(name, box, out, self._read)

    def _read(self, key: RankKey) -> torch.Tensor:
        place = self._places[key]
        tensor = self._chunks.read(place.name, self._box(place))
        return tensor if place.layer is None else tensor[0]

    def _box(self, place: "_Place") -> Box:
        """The box of the stored tensor that is the tensor of one layer, or all of it."""
        shape = self._chunks.tensors[place.name].shape
        if place.layer is None:
            return Box.whole(shape)
        return Box((place.layer, *(0 for _ in shape[1:])), (1, *shape[1:]))


@dataclass(frozen=True)
class _Place:
    """A tensor of the directory, or one layer of it."""

    name: str
    layer: int | None

    @property
    def num_leading(self) -> int:
        """Dims before those of the layer's tensor."""
        return 0 if self.layer is None else 1


def _places(tensors: Mapping[str, ChunkedTensor], with_optimizer: bool) -> dict[RankKey, _Place]:
    """Where each tensor of a model is that one rank would hold, and of its optimizer if that is wanted."""
    places: dict[RankKey, _Place] = {}
    foreign = []
    for stored, tensor in tensors.items():
        match = _STATE.fullmatch(stored)
        if match is None and "optimizer." in stored:
            foreign.append(stored)
            continue
        slot, name = (None, stored) if match is None else (_SLOT_NAMES[match[1]], match[2])
        if slot is not None and not with_optimizer:
            continue
        if stacked := _STACKED.fullmatch(name):
            for layer in range(tensor.shape[0]):
                places[RankKey(0, 0, 0, f"decoder.layers.{layer}.{stacked[1]}", slot)] = _Place(stored, layer)
        else:
            places[RankKey(0, 0, 0, name, slot)] = _Place(stored, None)
    if foreign and with_optimizer:
        raise CheckpointError(
            "the state of the optimizer must be Adam's, stored by parameter, as optimizer.state.exp_avg.PARAMETER is; "
            f"there is {foreign[0]}. Let Megatron-LM save it with --dist-ckpt-optim-fully-reshardable, or add "
            "--drop-optimizer to take the parameters alone."
        )
    return places


def _common(directory: Path, chunks: ChunkedDirectory) -> dict[str, Any]:
    """What is the same for all ranks: the arguments, the iteration, groups of the optimizer's parameters."""
    if (directory / _COMMON).is_file():
        content = load_pickle(directory / _COMMON, known_types())
    elif names := [name for name in chunks.objects if name.startswith(_COMMON_OBJECT)]:
        content = chunks.read_object(names[0], known_types())
        content = content[0] if isinstance(content, list) and len(content) == 1 else content
    else:
        raise CheckpointError(
            f"{directory} must hold {_COMMON} or an object {_COMMON_OBJECT}*, with the arguments of Megatron-LM: it is "
            "no checkpoint of its pretraining."
        )
    if not isinstance(content, dict) or not isinstance(content.get("args"), argparse.Namespace):
        raise CheckpointError(f"{directory}: {_COMMON} must hold a dict with args, a Namespace: it does not.")
    return content
