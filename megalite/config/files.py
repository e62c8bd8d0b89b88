"""Reading a configuration file: YAML or JSON, with flat keys named like the flags, or nested by group."""

import json
from pathlib import Path
from typing import Callable

import yaml

from megalite.config.fields import all_fields, group_titles
from megalite.config.report import one_error, raise_together
from megalite.errors import ConfigError


def read_file(path: str) -> dict[str, object]:
    """Flat key (as written) -> value of the file ``path``.

    Raises :class:`ConfigError` if it cannot be read, is no mapping, names a key twice or puts a field into the wrong
    group.
    """
    content = _load(path)
    if not isinstance(content, dict):
        raise one_error([f"{path} must hold a mapping from settings to values; it holds a {type(content).__name__}."])
    entries: list[tuple[str, object]] = []
    problems: list[str] = []
    for key, value in content.items():
        if key in group_titles() and isinstance(value, dict):
            entries += [(str(inner), own) for inner, own in value.items()]
            for name, home in _misplaced(key, value):
                problems.append(f"{name} must stand in group {home}; {path} has it in {key}. Move it.")
        else:
            entries.append((str(key), value))
    names = [name for name, _ in entries]
    repeated = dict.fromkeys(name for name in names if names.count(name) > 1)
    problems += [f"{name} must be set once; {path} sets it twice. Keep one." for name in repeated]
    raise_together(problems)
    return dict(entries)


def _misplaced(group: str, content: dict) -> list[tuple[str, str]]:
    """Keys of ``content`` that are fields of another group than ``group``, each with the group it belongs to."""
    found = [(str(key), all_fields().get(str(key).replace("-", "_"))) for key in content]
    return [(key, setting.group) for key, setting in found if setting is not None and setting.group != group]


def _load(path: str) -> object:
    readers: dict[str, Callable[[str], object]] = {".yaml": _load_yaml, ".yml": _load_yaml, ".json": _load_json}
    reader = readers.get(Path(path).suffix)
    if reader is None:
        raise one_error([f"--config must name a file that ends in .yaml, .yml or .json; given {path!r}."])
    try:
        return reader(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise one_error([f"{path} is not valid: {error}"]) from error


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses repeated keys, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        pairs = [(self.construct_object(key, deep=deep), value) for key, value in node.value]
        _refuse_repeats(pairs)
        return super().construct_mapping(node, deep=deep)


def _load_yaml(text: str) -> object:
    content = yaml.load(text, _UniqueKeyLoader)
    return {} if content is None else content


def _load_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=lambda pairs: dict(_refuse_repeats(pairs)))


def _refuse_repeats(pairs: list[tuple]) -> list[tuple]:
    keys = [key for key, _ in pairs]
    repeated = sorted({str(key) for key in keys if keys.count(key) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)} must be set once; it is set twice. Keep one.")
    return pairs
