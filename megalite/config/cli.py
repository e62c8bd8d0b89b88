"""The command line: flags and a configuration file become a :class:`Config`.

Every problem is reported at once: unknown and repeated flags, wrong values, flags of Megatron-LM that cannot be
honoured.
"""

import difflib
import re
import sys
from dataclasses import dataclass, field, replace
from typing import Mapping, Sequence

from megalite.config.fields import Field, all_fields, assemble
from megalite.config.files import read_file
from megalite.config.help import help_text
from megalite.config.megatron import accepted_names, outcome, own_value
from megalite.config.report import raise_together
from megalite.config.root import Config
from megalite.log import echo, logger


@dataclass(frozen=True)
class _Given:
    """One flag or key as given: its flat name, how the user wrote it, and its values as texts.

    ``null``: set to nothing, as only a file can.
    """

    name: str
    written: str
    texts: list[str]
    null: bool = False

    @property
    def shown(self) -> str:
        return "null" if self.null else " ".join(self.texts)


@dataclass
class _Settings:
    """What one source (the command line, a file) sets: field -> the flag that sets it; and what there is to say."""

    fields: dict[str, _Given] = field(default_factory=dict)
    weak: dict[str, _Given] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Reading:
    """What a command line with its file comes to: the fields given, their values if valid, and what there is to say."""

    given: frozenset[str]
    values: dict[str, object]
    notices: list[str]
    problems: list[str]


def parse(argv: Sequence[str] | None = None, *, overrides: Mapping[str, object] | None = None) -> Config:
    """The configuration that a command line asks for.

    ``argv``: the arguments without the program's name; default: those of this process. ``overrides``: field values by
    flat name that replace our defaults, and give way to the file and the command line (a program's own defaults, or
    the fields of a checkpoint). Precedence: command line, ``--config`` file, ``overrides``, defaults.

    Raises :class:`ConfigError` with every problem; with ``--help`` prints the help and leaves by SystemExit.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if "-h" in argv or "--help" in argv:
        echo(help_text())
        raise SystemExit(0)
    reading = _interpret(argv)
    values = {**(overrides or {}), **reading.values}
    missing = [own.flag for own in all_fields().values() if own.required and own.name not in {*values, *reading.given}]
    raise_together([*reading.problems, *([f"{', '.join(missing)} must be given."] if missing else [])])
    for notice in reading.notices:
        logger.info(notice)
    return assemble(values)


def given_fields(argv: Sequence[str]) -> dict[str, object]:
    """The values that a command line and its file set, by flat name, before defaults.

    What is missing or wrong is left out, for :func:`parse` to report.
    """
    return _interpret(argv).values


def _interpret(argv: Sequence[str]) -> _Reading:
    given, problems = _split(argv)
    paths = [" ".join(flag.texts) for flag in given if flag.name == "config"]
    in_file, problems_of_file = _read(paths[0]) if paths else ([], [])
    command = _translate([flag for flag in given if flag.name != "config"])
    file = _translate(in_file)
    chosen = {**file.weak, **command.weak, **file.fields, **command.fields}
    values, wrong = _values(chosen)
    found = [*problems, *problems_of_file, *file.problems, *command.problems, *wrong]
    return _Reading(frozenset(chosen), values, [*file.notices, *command.notices], found)


def _split(argv: Sequence[str]) -> tuple[list[_Given], list[str]]:
    """The flags of a command line with their values, and the problems: stray values, repeated flags."""
    given: list[_Given] = []
    problems: list[str] = []
    for token in argv:
        if re.match(r"--[A-Za-z]", token):
            flag, equals, value = token.partition("=")
            given.append(_Given(flag[2:].replace("-", "_"), flag, [value] if equals else []))
        elif re.match(r"-[A-Za-z]", token):
            problems.append(f"flags begin with two hyphens; given {token}.")
        elif given:
            given[-1].texts.append(token)
        else:
            problems.append(f"a value must follow its flag; {token!r} follows none.")
    names = [flag.name for flag in given]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        times = [f"{flag.written} {flag.shown}".rstrip() for flag in given if flag.name == name]
        problems.append(f"a flag must be given once; given: {', '.join(times)}. Keep one.")
    return given, problems


def _read(path: str) -> tuple[list[_Given], list[str]]:
    """The settings of a file in the form of flags, and the problems: values of a kind that no flag could have."""
    given: list[_Given] = []
    problems: list[str] = []
    for key, value in read_file(path).items():
        name, written = key.replace("-", "_"), f"{key} in {path}"
        setting = all_fields().get(name)
        if value is None or value == []:
            given.append(_Given(name, written, [], null=True))
        elif setting is not None and not setting.is_switch and isinstance(value, (bool, dict)):
            problems.append(f"{written} must be {setting.placeholder}; given {value}.")
        elif isinstance(value, list):
            given.append(_Given(name, written, [str(item) for item in value]))
        elif isinstance(value, str) and setting is not None and setting.many:
            given.append(_Given(name, written, value.split()))
        else:
            given.append(_Given(name, written, [str(value)]))
    return given, problems


def _translate(given: Sequence[_Given]) -> _Settings:
    """The settings that ``given`` amount to, Megatron-LM's flags translated."""
    settings = _Settings()
    for flag in given:
        fields, switched_off = all_fields(), all_fields().get(flag.name.removeprefix("no_"))
        if flag.name in fields:
            _set(settings, flag.name, flag)
        elif switched_off is not None and switched_off.is_switch:
            _set(settings, switched_off.name, replace(flag, texts=_inverted(flag.texts)))
        else:
            _translate_foreign(settings, flag)
    return settings


def _inverted(texts: list[str]) -> list[str]:
    return {"": ["False"], "True": ["False"], "False": ["True"]}.get(" ".join(texts), texts)


def _translate_foreign(settings: _Settings, flag: _Given) -> None:
    """Add a flag that is not a field of ours to ``settings``."""
    found = outcome(flag.name, flag.written, [text for text in flag.texts if text != "True"])
    if found is None:
        settings.problems.append(_unknown(flag))
    elif flag.null or flag.texts == ["False"]:
        settings.notices.append(f"{flag.written} asks for nothing.")
    elif found.problem:
        settings.problems.append(found.problem)
    else:
        settings.notices.append(found.notice)
        for name, texts in found.settings.items():
            own = _Given(name, flag.written, texts)
            if found.weak:
                settings.weak[name] = own
            else:
                _set(settings, name, own)


def _set(settings: _Settings, name: str, flag: _Given) -> None:
    """Record that ``flag`` sets field ``name``; two flags that set it differently are a problem."""
    texts, hint = own_value(name, flag.texts)
    if hint:
        settings.problems.append(f"{flag.written} {flag.shown} cannot be honoured. {hint}")
        return
    flag = replace(flag, texts=texts)
    other = settings.fields.setdefault(name, flag)
    if other.written != flag.written and (other.shown or "True") != (flag.shown or "True"):
        settings.problems.append(
            f"{other.written} and {flag.written} contradict each other: {name} would be "
            f"{other.shown or 'True'} and {flag.shown or 'True'}. Keep one."
        )


def _unknown(flag: _Given) -> str:
    names = [*all_fields(), *(f"no_{own.name}" for own in all_fields().values() if own.is_switch), *accepted_names()]
    close = difflib.get_close_matches(flag.name, names, n=1, cutoff=0.7)
    shown = "--" + close[0].replace("_", "-") if close and flag.written.startswith("--") else "".join(close)
    advice = f"perhaps you meant {shown}" if close else "--help lists all flags"
    return f"{flag.written} is not known: {advice}."


def _values(chosen: Mapping[str, _Given]) -> tuple[dict[str, object], list[str]]:
    """The values that texts stand for, and the problems with them."""
    values: dict[str, object] = {}
    problems: list[str] = []
    for name, flag in chosen.items():
        try:
            values[name] = _value(all_fields()[name], flag)
        except ValueError as error:
            problems.append(f"{flag.written} {error}; given {flag.shown or 'nothing'}.")
    return values, problems


def _value(setting: Field, flag: _Given) -> object:
    if not flag.null:
        return setting.parse(flag.texts)
    if not setting.optional and not setting.many:
        raise ValueError(f"must be {setting.placeholder or 'true or false'}")
    return () if setting.many else None
