"""Errors of one rank, raised by all: no rank leaves alone while the others wait for it."""

from typing import Callable, TypeVar

from megalite.errors import CheckpointError
from megalite.parallel.collectives import gather_objects
from megalite.parallel.group import Group

_SHOWN_RANKS = 8
Result = TypeVar("Result")


def attempt(action: Callable[[], Result], failure: str) -> tuple[Result | None, str | None]:
    """The action's result, or what went wrong in words; ``failure`` introduces what the operating system says."""
    try:
        return action(), None
    except CheckpointError as error:
        return None, str(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return None, f"{failure}: {where}{error.strerror or error}"


def together(action: Callable[[], Result], group: Group, failure: str) -> Result:
    """Run an action of this rank's own on every rank. If it fails anywhere, the same error is raised everywhere."""
    result, problem = attempt(action, failure)
    problems = gather_objects(problem, group)
    if any(problems):
        raise shared_error(by_rank(problems))
    return result


def by_rank(texts: list[str | None]) -> str:
    """The texts of all ranks, each distinct one once, with its ranks where not all say the same."""
    ranks_with: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        if text is not None:
            ranks_with.setdefault(text, []).append(rank)
    return "\n".join(text + _where(ranks, len(texts)) for text, ranks in ranks_with.items())


def shared_error(text: str) -> CheckpointError:
    """An error that every rank raises alike: the program then shows it once."""
    error = CheckpointError(text)
    error.same_on_every_rank = True
    return error


def _where(ranks: list[int], world_size: int) -> str:
    if len(ranks) == world_size:
        return ""
    shown = ", ".join(map(str, ranks[:_SHOWN_RANKS])) + (", ..." if len(ranks) > _SHOWN_RANKS else "")
    return f" (rank {shown})" if len(ranks) == 1 else f" (ranks {shown})"
