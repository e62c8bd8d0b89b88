"""Directories of Hugging Face models: config.json, weights in safetensors (or pickled) files, a tokenizer."""

import json
import re
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from megalite.checkpoint.directory import sync_directory, write_file
from megalite.checkpoint.piece import STATE_PREFIX
from megalite.checkpoint.shard import dtype_name
from megalite.config import Config, ModelConfig
from megalite.config.check import rules_of
from megalite.config.rules import model as model_rules
from megalite.convert.extras import CONFIG_JSON, copy_extras, extras_in, original_config
from megalite.convert.families import family_of, fitting_family
from megalite.convert.families._fields import Fields
from megalite.convert.layout import Layout
from megalite.convert.options import ReadOptions, WriteOptions
from megalite.convert.progress import Progress
from megalite.convert.source import Source
from megalite.convert.tensors import PickledFile, SafeFile, num_bytes, write_safetensors
from megalite.errors import CheckpointError, ConfigError
from megalite.state import Box

_WEIGHTS = (("model.safetensors", SafeFile), ("pytorch_model.bin", PickledFile))
_HEAD = "lm_head.weight"


def detect(directory: Path) -> bool:
    return (directory / CONFIG_JSON).is_file() and any(_weight_files(directory))


def open_source(directory: Path, options: ReadOptions = ReadOptions()) -> "HuggingFaceSource":
    """Read a directory. Raises :class:`CheckpointError` that names what megalite cannot honour, or what is damaged."""
    if options.step is not None:
        raise CheckpointError(
            f"{directory} is a Hugging Face directory, which has no steps: drop --ckpt-step {options.step}."
        )
    return HuggingFaceSource(directory)


class HuggingFaceSource(Source):
    """The weights of a Hugging Face directory under our names. Nothing is read before it is asked for."""

    def __init__(self, directory: Path):
        self.directory = directory
        content = _read_json(directory / CONFIG_JSON)
        self.family = family_of(content.get("model_type"), str(directory / CONFIG_JSON))
        self._files = _open_weights(directory)
        self._is_base_model = not any(key.startswith(self.family.BASE_PREFIX) for key in self._files)
        model = _model_config(self.family, content, directory)
        self._layout: Layout = self.family.layout(model)
        self._check()
        dtypes = {self.dtype(name) for name in self.names()}
        precision = {"bf16": dtypes == {"bfloat16"}, "fp16": dtypes == {"float16"}, "fp64": dtypes == {"float64"}}
        self.config = Config(model=model).replace(**precision)
        self.meta = {"iteration": 0}
        self.extras = extras_in(directory, also=[CONFIG_JSON])

    def names(self) -> tuple[str, ...]:
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(self._layout.shapes))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._layout.shapes[name]

    def dtype(self, name: str) -> str:
        key = self._layout.sources(name)[0].key
        return dtype_name(self._file_of(key).dtype(self._own_key(key)))

    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        self._layout.fill(name, box, out, lambda key: self._file_of(key).tensor(self._own_key(key)))

    def _own_key(self, key: str) -> str:
        """What the directory calls a tensor: that of a base model alone leaves the prefix out."""
        return key.removeprefix(self.family.BASE_PREFIX) if self._is_base_model else key

    def _file_of(self, key: str) -> SafeFile | PickledFile:
        return self._files[self._own_key(key)]

    def _check(self) -> None:
        """Compare names and shapes with those that config.json calls for, all differences together."""
        wanted = {self._own_key(key): shape for key, shape in self._layout.foreign_shapes.items()}
        missing = sorted(wanted.keys() - self._files.keys())
        surplus = [key for key in self._files if key not in wanted and not re.fullmatch(self.family.BUFFERS, key)]
        if _HEAD in surplus and self._head_is_tied():
            surplus.remove(_HEAD)
        found = {key: self._files[key].shape(key) for key in wanted.keys() & self._files.keys()}
        unfit = [f"{key} is {found[key]}, not {wanted[key]}" for key in sorted(found) if found[key] != wanted[key]]
        problems = (
            _listing("missing", missing) + _listing("not known", sorted(surplus)) + _listing("of another shape", unfit)
        )
        if problems:
            raise CheckpointError(f"{self.directory} does not hold the model of its {CONFIG_JSON}:{problems}")

    def _head_is_tied(self) -> bool:
        embedding = self._layout.sources("embedding.word.weight")[0].key
        return torch.equal(self._files[_HEAD].tensor(_HEAD), self._file_of(embedding).tensor(self._own_key(embedding)))


def _listing(title: str, entries: list[str]) -> str:
    more = f" and {len(entries) - 5} more" if len(entries) > 5 else ""
    return f"\n  {title}: {', '.join(entries[:5])}{more}" if entries else ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} must be a JSON file: it cannot be read ({error}).") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object; it holds a {type(content).__name__}.")
    return content


def _model_config(family: ModuleType, content: dict[str, Any], directory: Path) -> ModelConfig:
    where = str(directory / CONFIG_JSON)
    fields = Fields(content, where)
    try:
        model = ModelConfig(**family.read_config(fields))
        config = Config(model=model)
        problems = [text for rule in rules_of(model_rules) for text in rule(config, 1)]
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f"{where} does not describe a model: {error}.") from error
    if problems:
        raise CheckpointError(f"{where} does not describe a model that megalite can build: {' '.join(problems)}")
    fields.finish()
    return model


def _weight_files(directory: Path) -> list[tuple[Path, type]]:
    """The files that hold weights: one, or those that an index lists; safetensors where there are both."""
    for name, kind in _WEIGHTS:
        if (directory / f"{name}.index.json").is_file():
            mapping = _read_json(directory / f"{name}.index.json").get("weight_map", {})
            return [(directory / file, kind) for file in sorted(set(mapping.values()))]
        if (directory / name).is_file():
            return [(directory / name, kind)]
    return []


def _open_weights(directory: Path) -> dict[str, SafeFile | PickledFile]:
    """The file of each tensor by its name."""
    paths = _weight_files(directory)
    if not paths:
        raise CheckpointError(
            f"{directory} must hold {' or '.join(name for name, _ in _WEIGHTS)}, whole or with an index."
        )
    files = [kind(path) for path, kind in paths]
    return {key: file for file in files for key in file.keys()}


def write(source: Source, directory: Path, options: WriteOptions, progress: Progress) -> None:
    """Write the parameters as a Hugging Face directory; optimizer state has no place in one and must be gone
    already."""
    if any(name.startswith(STATE_PREFIX) for name in source.names()):
        raise ConfigError("a Hugging Face directory cannot hold optimizer state: add --drop-optimizer.")
    model, original = source.config.model, original_config(source.extras)
    family = fitting_family(model, original.get("model_type"))
    table: Layout = family.layout(model)
    dtypes = {key: getattr(torch, source.dtype(table.names_in(key)[0])) for key in table.foreign_shapes}
    total = sum(num_bytes(dtypes[key], shape) for key, shape in table.foreign_shapes.items())
    progress.begin(total)
    read = lru_cache(maxsize=1)(source.read)  # Queries, keys and values come from one tensor.

    def make(key: str) -> torch.Tensor:
        tensor = table.make_foreign(key, read)
        progress.add(num_bytes(tensor.dtype, tuple(tensor.shape)))
        return tensor

    shards = _shards(table, dtypes, options.max_shard_bytes)
    for file, keys in shards.items():
        write_safetensors(directory / file, [(key, dtypes[key], table.foreign_shapes[key]) for key in keys], make)
    if len(shards) > 1:
        mapping = {key: file for file, keys in shards.items() for key in keys}
        _write_json(
            directory / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": mapping}
        )
    content = {**_kept_fields(original, family), **family.write_config(model, original.get("model_type"))}
    content["torch_dtype"] = dtype_name(dtypes[table.parts[0].key])
    _write_json(directory / CONFIG_JSON, content)
    copy_extras({name: path for name, path in source.extras.items() if name != CONFIG_JSON}, directory)
    sync_directory(directory)


def _shards(table: Layout, dtypes: dict[str, torch.dtype], max_bytes: int) -> dict[str, list[str]]:
    """The tensors of each file, in order, files as full as they may be."""
    groups: list[list[str]] = [[]]
    filled = 0
    for key, shape in table.foreign_shapes.items():
        size = num_bytes(dtypes[key], shape)
        if groups[-1] and filled + size > max_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(key)
        filled += size
    if len(groups) == 1:
        return {"model.safetensors": groups[0]}
    return {f"model-{index + 1:05d}-of-{len(groups):05d}.safetensors": keys for index, keys in enumerate(groups)}


def _kept_fields(original: dict[str, Any], family: ModuleType) -> dict[str, Any]:
    """What the model's first config.json says besides the model itself, such as the ids of special tokens."""
    if original.get("model_type") not in family.MODEL_TYPES:
        return {}
    return {
        name: value for name, value in original.items() if name.endswith("_token_id") or name == "initializer_range"
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_file(path, json.dumps(content, indent=2, sort_keys=True) + "\n")
