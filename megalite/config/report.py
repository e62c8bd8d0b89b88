"""Reporting several problems of a configuration as one error."""

from typing import Sequence

from megalite.errors import ConfigError


def raise_together(problems: Sequence[str]) -> None:
    """Raise :func:`one_error` of all ``problems``; do nothing when there are none."""
    if problems:
        raise one_error(problems)


def one_error(problems: Sequence[str]) -> ConfigError:
    """An error that lists all ``problems``, marked as one that every rank finds, so that it is shown once."""
    listed = [f"{len(problems)} problems:", *(f"  - {problem}" for problem in problems)]
    error = ConfigError(problems[0] if len(problems) == 1 else "\n".join(listed))
    error.same_on_every_rank = True
    return error


def nearest_multiples(number: int, unit: int) -> str:
    """The positive multiples of ``unit`` next to ``number``, which is none: ``4 or 8``."""
    below = number // unit * unit
    return either([multiple for multiple in (below, below + unit) if multiple > 0])


def either(values: Sequence[object]) -> str:
    """``values`` in words: ``1, 2 or 4``."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " or " + texts[-1]
