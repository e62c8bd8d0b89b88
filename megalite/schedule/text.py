"""The text form of a schedule: a header, then one line of actions per rank. It can be stored and read back."""

import re

from megalite.errors import ScheduleError
from megalite.schedule.actions import Action, Schedule

_HEADER = re.compile(r"schedule (\S+) pp=(\d+) stages=(\d+) microbatches=(\d+)( forward-only)?")


def render_actions(schedule: Schedule) -> str:
    """The schedule as text; :func:`parse` reads it back."""
    header = f"schedule {schedule.name} pp={schedule.pp} stages={schedule.num_stages}"
    header += f" microbatches={schedule.num_microbatches}{' forward-only' if schedule.forward_only else ''}"
    rows = [f"rank {rank}: {' '.join(map(str, actions))}" for rank, actions in enumerate(schedule.ranks)]
    return "\n".join([header, *rows]) + "\n"


def parse(text: str) -> Schedule:
    """The schedule of which ``text`` is the text form, not verified.

    Raises :class:`ScheduleError` with the line at fault.
    """
    lines = text.strip().split("\n")
    match = _HEADER.fullmatch(lines[0].strip())
    if match is None:
        form = "schedule NAME pp=P stages=S microbatches=M [forward-only]"
        raise ScheduleError(f"line 1 must read {form!r}; given {lines[0]!r}.")
    ranks = []
    for number, line in enumerate(lines[1:]):
        label, colon, actions = line.partition(":")
        if not colon or label.strip() != f"rank {number}":
            raise ScheduleError(f"line {number + 2} must begin with 'rank {number}:'; given {line[:40]!r}.")
        try:
            ranks.append(tuple(Action.parse(action) for action in actions.split()))
        except ScheduleError as error:
            raise ScheduleError(f"line {number + 2}: {error}") from error
    pp, num_stages, num_microbatches = (int(match[group]) for group in (2, 3, 4))
    return Schedule(match[1], pp, num_stages, num_microbatches, tuple(ranks), forward_only=match[5] is not None)
