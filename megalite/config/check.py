"""Checking a configuration before any process group exists: all violated rules in one error."""

import inspect
from types import ModuleType
from typing import Callable, Iterable, Iterator

from megalite.config.report import raise_together
from megalite.config.root import Config
from megalite.config.rules import checkpoint, data, model, optimizer, parallel, ranges, training
from megalite.errors import MegaliteError

Rule = Callable[[Config, int], Iterator[str]]


def rules_of(module: ModuleType) -> list[Rule]:
    """The public functions that ``module`` defines, in the order of its text."""
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    return [rule for rule in functions if rule.__module__ == module.__name__ and not rule.__name__.startswith("_")]


def check(config: Config, world_size: int, also: Iterable[Callable[[], object]] = ()) -> None:
    """Raise one :class:`ConfigError` that lists every rule which ``config`` violates in a world of ``world_size``
    ranks.

    ``also``: further checks, from packages that the configuration does not know; what they raise as a
    :class:`MegaliteError` joins the list. Rules between fields, and these checks, are tried once every single number
    is in its range, since numbers out of range make them meaningless.
    """
    problems = [text for rule in rules_of(ranges) for text in rule(config, world_size)]
    raise_together(problems)
    for module in (model, parallel, training, optimizer, data, checkpoint):
        problems += [text for rule in rules_of(module) for text in rule(config, world_size)]
    for further in also:
        try:
            further()
        except MegaliteError as error:
            problems.append(str(error))
    raise_together(list(dict.fromkeys(problems)))  # a further check may come upon what a rule has found
