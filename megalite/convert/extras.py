"""What belongs to a model besides its tensors, and goes with it: the files of its tokenizer and of text generation."""

import json
import shutil
from pathlib import Path
from typing import Any, Iterable, Mapping

from megalite.config import Config

FOLDER = "huggingface"
"""Folder of a checkpoint of ours that keeps these files; with the weights beside them it is a Hugging Face
directory."""
CONFIG_JSON = "config.json"

_NAMES = (
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json chat_template.jinja "
    "chat_template.json vocab.json merges.txt vocab.txt tokenizer.model generation_config.json"
).split()

Extras = Mapping[str, Path]
"""Files by the names that they have in a Hugging Face directory."""


def extras_in(directory: Path, also: Iterable[str] = ()) -> dict[str, Path]:
    """Files of the tokenizer and of generation in a directory, those that are there; and others by name."""
    return {name: path for name in (*_NAMES, *also) if (path := directory / name).is_file()}


def extras_of(config: Config, checkpoint: Path) -> dict[str, Path]:
    """The extra files of a checkpoint of ours: those that it keeps, and its tokenizer's, that the flags of its run
    name."""
    data, kept = config.data, extras_in(checkpoint / FOLDER, also=[CONFIG_JSON])
    named: dict[str, Path] = {}
    if data.tokenizer_model is not None:
        path = Path(data.tokenizer_model)
        named = extras_in(path if path.is_dir() else path.parent)
    elif data.vocab_file is not None and data.merge_file is not None:
        named = {"vocab.json": Path(data.vocab_file), "merges.txt": Path(data.merge_file)}
    return {**{name: path for name, path in named.items() if path.is_file()}, **kept}


def copy_extras(extras: Extras, directory: Path) -> None:
    """Copy the files into a directory, which is made if there are any."""
    for name, path in sorted(extras.items()):
        directory.mkdir(exist_ok=True)
        shutil.copyfile(path, directory / name)


def original_config(extras: Extras) -> dict[str, Any]:
    """The config.json that a model came with; empty if it came with none."""
    path = extras.get(CONFIG_JSON)
    return {} if path is None else json.loads(path.read_text(encoding="utf-8"))
