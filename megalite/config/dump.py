"""Writing a configuration down: compactly for the log, in full as YAML, and as the difference of two."""

import dataclasses
import textwrap

import yaml

from megalite.config.fields import all_fields
from megalite.config.root import Config


def flat(config: Config) -> dict[str, object]:
    """Every field's value by flat name, in the order of the groups."""
    return {name: getattr(getattr(config, own.group), name) for name, own in all_fields().items()}


def summary(config: Config) -> str:
    """The fields that differ from their defaults, one paragraph a group, for the log."""
    values = flat(config)
    lines = ["configuration (what differs from the defaults):"]
    differing = [field for name, field in all_fields().items() if values[name] != field.default]
    for group in dataclasses.fields(config):
        own = [field.name for field in differing if field.group == group.name]
        if own:
            text = ", ".join(f"{name} {_shown(values[name])}" for name in own)
            lines += textwrap.wrap(text, 120, initial_indent=f"  {group.name:<11}", subsequent_indent=" " * 13)
    return "\n".join(lines)


def to_yaml(config: Config) -> str:
    """The whole configuration by group, in the form that ``--config`` reads back to an equal one."""
    groups = dataclasses.asdict(config)
    plain = {group: {name: _plain(value) for name, value in fields.items()} for group, fields in groups.items()}
    return yaml.safe_dump(plain, sort_keys=False, width=10**6)


def differences(before: Config, after: Config) -> list[str]:
    """One line per field that differs, e.g. ``lr: 0.1 -> 0.2``."""
    new = flat(after)
    return [f"{name}: {_shown(old)} -> {_shown(new[name])}" for name, old in flat(before).items() if old != new[name]]


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    return " ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
