"""Flags of Megatron-LM and Megatron-DeepSpeed that are not fields of ours: translated, harmless or refused.

The table is ``megatron_flags.yaml``. Every flag known to it has exactly one :class:`Fate`.
"""

import fnmatch
import functools
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Mapping, Sequence

import yaml

_TABLE = Path(__file__).with_name("megatron_flags.yaml")
_OWN_VALUE = "{value}"


@dataclass(frozen=True)
class Fate:
    """What becomes of a flag.

    ``settings``: field of ours -> text, for a translated flag that stands for them with every value; ``by_value``: the
    same per value. ``weak``: they give way to the same fields set otherwise. ``why``: the reason, for a harmless or
    refused flag; ``values``: the only values with which a flag is harmless, empty when all are.
    """

    kind: Literal["translated", "harmless", "refused"]
    why: str = ""
    values: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    by_value: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    weak: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one flag with its values amounts to: settings (field -> texts), a notice to show, or a problem."""

    settings: Mapping[str, list[str]] = field(default_factory=dict)
    weak: bool = False
    notice: str = ""
    problem: str = ""


@functools.cache
def table() -> Mapping:
    """The content of ``megatron_flags.yaml``."""
    return MappingProxyType(yaml.safe_load(_TABLE.read_text(encoding="utf-8")))


def fates(name: str) -> list[Fate]:
    """Every entry of the table for the flag ``name`` (with underscores, without hyphens in front): none or one."""
    found = []
    if name in table()["translated"]:
        found.append(Fate("translated", settings=table()["translated"][name], weak=name in table()["weak"]))
    if name in table()["translated_values"]:
        found.append(Fate("translated", by_value=table()["translated_values"][name]))
    for kind in ("harmless", "refused"):
        for family in table()[kind]:
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in family["flags"].split()):
                found.append(Fate(kind, why=family["why"], values=tuple(family.get("values", ()))))
    return found


def accepted_names() -> list[str]:
    """Names of all flags that are translated or harmless."""
    harmless = [name for family in table()["harmless"] for name in family["flags"].split()]
    return [*table()["translated"], *table()["translated_values"], *harmless]


def outcome(name: str, written: str, texts: Sequence[str]) -> Outcome | None:
    """What the flag ``name``, given as ``written`` with the values ``texts``, amounts to; None for an unknown flag."""
    found = fates(name)
    if not found:
        return None
    fate, value = found[0], " ".join(texts)
    if fate.kind == "refused":
        return Outcome(problem=f"{written} cannot be honoured. {fate.why}")
    if fate.kind == "harmless":
        if fate.values and value not in fate.values:
            allowed = " or ".join(fate.values)
            return Outcome(problem=f"{written} must be {allowed}, because {fate.why}; given {value or 'nothing'}.")
        return Outcome(notice=f"{written} {value}".rstrip() + f" has no effect: {fate.why}.")
    if fate.by_value and value not in fate.by_value:
        return Outcome(problem=f"{written} must be {' or '.join(fate.by_value)} here; given {value or 'nothing'}.")
    settings = fate.by_value[value] if fate.by_value else fate.settings
    return _translated(f"{written} {value}".rstrip(), settings, texts, fate.weak)


def _translated(written: str, settings: Mapping[str, str], texts: Sequence[str], weak: bool) -> Outcome:
    filled = {name: list(texts) if text == _OWN_VALUE else [text] for name, text in settings.items()}
    shown = ", ".join(f"{name} {' '.join(own)}" for name, own in filled.items()) or "the defaults"
    condition = ", unless that is set otherwise" if weak else ""
    return Outcome(settings=filled, weak=weak, notice=f"{written} is read as: {shown}{condition}.")


def own_value(name: str, texts: list[str]) -> tuple[list[str], str]:
    """Megatron-LM's value of our field ``name`` in our words, and a hint (or "") if it cannot be honoured."""
    if len(texts) != 1:
        return texts, ""
    renamed = table()["renamed_values"].get(name, {})
    return [renamed.get(texts[0], texts[0])], table()["refused_values"].get(name, {}).get(texts[0], "")
