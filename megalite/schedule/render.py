"""Draws a timed schedule as text: one row per rank, time from left to right."""

import math
import string

from megalite.schedule.actions import Action, Schedule
from megalite.schedule.simulate import Timeline

_LABEL = "rank {rank:>{digits}} | "


def render(schedule: Schedule, timeline: Timeline, width: int = 120) -> str:
    """The grid of computes, cut into blocks of at most ``width`` characters.

    One column is the shortest compute. A cell shows kind and micro-batch (``F3``) and, if ranks have several virtual
    stages, which of them: a letter, ``a`` for the rank's first (``F3a``). A longer compute is drawn out with dashes, an
    idle column shows a dot.
    """
    cell = 1 + max(len(_name(schedule, span.action)) for spans in timeline.spans for span in spans)
    unit = min(span.end - span.start for spans in timeline.spans for span in spans)
    num_columns = _column(timeline.makespan, unit)
    rows = [["."] * num_columns for _ in timeline.spans]
    for row, spans in zip(rows, timeline.spans):
        for span in spans:
            first, last = _column(span.start, unit), _column(span.end, unit)
            text = _name(schedule, span.action).ljust((last - first) * cell - 1, "-")
            row[first:last] = [text[at : at + cell] for at in range(0, len(text), cell)]
    digits = len(str(schedule.pp - 1))
    per_block = max(1, (width - len(_LABEL.format(rank=0, digits=digits))) // cell)
    blocks = []
    for first in range(0, num_columns, per_block):
        for rank, row in enumerate(rows):
            cells = "".join(text.ljust(cell) for text in row[first : first + per_block])
            blocks.append((_LABEL.format(rank=rank, digits=digits) + cells).rstrip())
        blocks.append("")
    return "\n".join(blocks[:-1]) + "\n"


def _column(time: float, unit: float) -> int:
    """Nearest column, halves up: a compute of at least one unit is then at least one column wide."""
    return math.floor(time / unit + 0.5)


def _name(schedule: Schedule, action: Action) -> str:
    chunk = string.ascii_letters[action.stage // schedule.pp] if schedule.virtual > 1 else ""
    return f"{action.kind.value}{action.microbatch}{chunk}"
