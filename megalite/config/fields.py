"""The flat view of the configuration: every field by name, with its type, default and help; texts to values."""

import ast
import dataclasses
import functools
import inspect
import math
import types
import typing
from dataclasses import dataclass
from typing import Literal, Mapping

from megalite.config.root import Config

REQUIRED = dataclasses.MISSING
"""Default of a field that must be given."""


@dataclass(frozen=True)
class Field:
    """One setting: ``name`` in ``group``, a flag on the command line and a key in a file."""

    name: str
    group: str
    annotation: object
    default: object

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def optional(self) -> bool:
        """Whether None is a value of this field."""
        return type(None) in typing.get_args(self.annotation)

    @property
    def type(self) -> object:
        """The annotation without None."""
        kinds = [kind for kind in typing.get_args(self.annotation) if kind is not type(None)]
        return kinds[0] if self.optional else self.annotation

    @property
    def is_switch(self) -> bool:
        """Whether the flag stands alone, without a value."""
        return self.annotation is bool

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that may be given; empty when any text of the type may."""
        return typing.get_args(self.type) if typing.get_origin(self.type) is Literal else ()

    @property
    def many(self) -> bool:
        """Whether the field takes any number of values."""
        return Ellipsis in typing.get_args(self.type)

    @property
    def placeholder(self) -> str:
        """How the value is shown in help texts, e.g. ``INT``, ``{auto,nccl,gloo}``, ``STR ...``; empty for a switch."""
        if self.is_switch:
            return ""
        if self.choices:
            return "{" + ",".join(self.choices) + "}"
        kinds = [kind.__name__.upper() for kind in self._element_types if kind is not Ellipsis]
        return " ".join(kinds) + (" ..." if self.many else "")

    @property
    def _element_types(self) -> tuple:
        return typing.get_args(self.type) if typing.get_origin(self.type) is tuple else (self.type,)

    def parse(self, texts: list[str]) -> object:
        """The value that ``texts`` stand for; a switch may stand alone. Raises ValueError that says what must hold."""
        if self.is_switch and not texts:
            return True
        if self.choices:
            return _one(texts, self._choose)
        kinds = self._element_types
        if self.many and not texts:
            raise ValueError("must be at least one value")
        if self.many:
            return tuple(_CONVERT[kinds[0]](text) for text in texts)
        if len(kinds) == 1:
            return _one(texts, _CONVERT[kinds[0]])
        if len(texts) != len(kinds):
            raise ValueError(f"must be {len(kinds)} values ({self.placeholder})")
        return tuple(_CONVERT[kind](text) for kind, text in zip(kinds, texts))

    def _choose(self, text: str) -> str:
        if text not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        return text


def _one(texts: list[str], convert: typing.Callable[[str], object]) -> object:
    if len(texts) != 1:
        raise ValueError("must be exactly one value")
    return convert(texts[0])


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _boolean(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError("must be true or false")
    return text == "True"


_CONVERT = {int: _whole_number, float: _number, str: str, bool: _boolean}


@functools.cache
def all_fields() -> Mapping[str, Field]:
    """Every field of the configuration by its flat name, in the order of the groups."""
    table: dict[str, Field] = {}
    for group in dataclasses.fields(Config):
        for field in dataclasses.fields(group.type):
            assert field.name not in table, f"two groups have a field {field.name}"
            table[field.name] = Field(field.name, group.name, field.type, field.default)
    return types.MappingProxyType(table)


def group_titles() -> dict[str, str]:
    """Name of each group -> the first line of its docstring."""
    return {group.name: group.type.__doc__ for group in dataclasses.fields(Config)}


def help_texts() -> dict[str, str]:
    """Name of each field -> the docstring under it, on one line."""
    texts: dict[str, str] = {}
    for group in dataclasses.fields(Config):
        body = ast.parse(inspect.getsource(group.type)).body[0].body
        for statement, following in zip(body, body[1:]):
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                texts[statement.target.id] = " ".join(following.value.value.split())
    return texts


def assemble(values: Mapping[str, object]) -> Config:
    """The configuration with the given fields and defaults elsewhere."""
    groups = {}
    for group in dataclasses.fields(Config):
        own = {name: value for name, value in values.items() if all_fields()[name].group == group.name}
        groups[group.name] = group.type(**own)
    return Config(**groups)
