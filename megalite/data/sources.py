"""Which corpora serve which split: the flags that name them, and the files that two of those flags name."""

import json
import os
from typing import Any, NamedTuple

from megalite.config import DataConfig
from megalite.data.blend import Blend, parse_data_path
from megalite.data.split import SPLITS
from megalite.errors import ConfigError


class Sources(NamedTuple):
    """The corpora of each split; ``divided``: all splits have the same ones, of which --split gives each a share."""

    train: Blend | None
    valid: Blend | None
    test: Blend | None
    divided: bool


def find_sources(data: DataConfig) -> Sources:
    """The corpora that the flags name.

    --data-args-path: a text file with what would follow --data-path, separated by white space.
    --per-split-data-args-path: a JSON object with the keys train, valid and test, each such a text or a list. Both as
    in Megatron-LM. Raises :class:`ConfigError` unless corpora are named in exactly one way, and for files that are
    missing or of another form.
    """
    if not names_one_way(data):
        given = " and ".join([*_given_ways(data), *(["split"] if data.split else [])]) or "none of them"
        raise ConfigError(
            "data must come from data_path or data_args_path, divided by split, or from train_data_path, "
            f"valid_data_path and test_data_path, or from per_split_data_args_path; given {given}: choose one way."
        )
    if data.data_path:
        blend = parse_data_path(data.data_path)
        return Sources(blend, blend, blend, divided=True)
    if data.data_args_path:
        blend = parse_data_path(_read(data.data_args_path, "--data-args-path").split(), data.data_args_path)
        return Sources(blend, blend, blend, divided=True)
    if data.per_split_data_args_path:
        return Sources(*_per_split_file(data.per_split_data_args_path), divided=False)
    blends = []
    for split in SPLITS:
        path = getattr(data, f"{split}_data_path")
        blends.append(parse_data_path(path, f"--{split}-data-path") if path else None)
    return Sources(*blends, divided=False)


def names_one_way(data: DataConfig) -> bool:
    """Whether corpora are named in exactly one way, and --split divides only a list that all splits share."""
    ways = _given_ways(data)
    return len(ways) == 1 and not (data.split and ways[0] not in ("data_path", "data_args_path"))


def _given_ways(data: DataConfig) -> list[str]:
    ways = [name for name in ("data_path", "data_args_path", "per_split_data_args_path") if getattr(data, name)]
    own_paths = [f"{split}_data_path" for split in SPLITS if getattr(data, f"{split}_data_path")]
    return ways + [" and ".join(own_paths)] * bool(own_paths)


def _per_split_file(path: str) -> list[Blend | None]:
    try:
        content = json.loads(_read(path, "--per-split-data-args-path"))
    except ValueError as error:
        raise ConfigError(f"--per-split-data-args-path {path} must be JSON; {error}: correct the file.") from None
    if not isinstance(content, dict) or not content or not set(content) <= set(SPLITS):
        given = list(content) if isinstance(content, dict) else type(content).__name__
        raise ConfigError(
            f"--per-split-data-args-path {path} must be a JSON object with the keys {', '.join(SPLITS)}; given "
            f"{given}: correct the file."
        )
    return [_entry(content.get(split), f"{split} of {path}") for split in SPLITS]


def _entry(entry: Any, where: str) -> Blend | None:
    if entry is None or entry == []:
        return None
    items = entry.split() if isinstance(entry, str) else entry
    if not isinstance(items, list) or not all(isinstance(item, (str, int, float)) for item in items):
        raise ConfigError(
            f"{where} must be a text, or a list of prefixes and weights; given {entry!r}: correct the file."
        )
    return parse_data_path([str(item) for item in items], where)


def _read(path: str, flag: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{flag} must name a text file; {path} cannot be read ({error}): correct the path.") from None
    if not text.strip():
        raise ConfigError(f"{flag} must name a file that lists corpora; {path} is empty: list them, or drop the flag.")
    return text


def validation_sets(data: DataConfig, sources: Sources) -> dict[str, Blend]:
    """The validation sets by name: "validation" for the one that all its corpora make together or, with
    --multiple-validation-sets, "validation NAME" for each corpus.

    Weights in a list of validation corpora have no meaning for sets that are read apart or in full, and are refused;
    those of a list that all splits share are for training. Raises :class:`ConfigError`.
    """
    blend = sources.valid
    apart = data.multiple_validation_sets
    if blend is None or not (apart or data.full_validation):
        return {} if blend is None else {"validation": blend}
    if blend.weights is not None and not sources.divided and len(blend.prefixes) > 1:
        flag = "multiple_validation_sets" if apart else "full_validation"
        raise ConfigError(f"{flag} needs validation corpora without weights; given {blend.weights}: drop the weights.")
    if not apart:
        return {"validation": Blend(blend.prefixes, None)}
    names = data.validation_set_names or [os.path.basename(prefix) for prefix in blend.prefixes]
    if len(names) != len(blend.prefixes) or len(set(names)) != len(names):
        raise ConfigError(
            f"validation_set_names must be {len(blend.prefixes)} different names, one for each validation corpus; "
            f"given {' '.join(names)}: name them."
        )
    return {f"validation {name}": Blend((prefix,), None) for name, prefix in zip(names, blend.prefixes)}
