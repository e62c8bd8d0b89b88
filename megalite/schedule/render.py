"""Draws a timed schedule as text: one row per rank, time from left to right."""

import math
import string

from megalite.schedule.actions import Action, Schedule
from megalite.schedule.simulate import Timeline


def render(schedule: Schedule, timeline: Timeline, width: int = 120) -> str:
    """The grid of computes, cut into blocks of equal length of at most ``width`` characters.

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
            fill = "-" if last - first > 1 else " "
            text = _name(schedule, span.action).ljust((last - first) * cell - 1, fill)
            row[first:last] = [text[at : at + cell] for at in range(0, len(text), cell)]
    return _in_blocks(["".join(text.ljust(cell) for text in row) for row in rows], cell, width)


def _in_blocks(rows: list[str], cell: int, width: int) -> str:
    """Rows of cells, cut between cells, with the rank before each piece."""
    labels = [f"rank {rank:>{len(str(len(rows) - 1))}} | " for rank in range(len(rows))]
    num_columns = len(rows[0]) // cell
    fitting = max(1, (width - len(labels[0])) // cell)
    num_blocks = math.ceil(num_columns / fitting)
    length = math.ceil(num_columns / num_blocks) * cell
    blocks = [
        "".join(f"{label}{row[first : first + length]}".rstrip() + "\n" for label, row in zip(labels, rows))
        for first in range(0, len(rows[0]), length)
    ]
    return "\n".join(blocks)


def _column(time: float, unit: float) -> int:
    """Nearest column, halves up, even if a rounding error made them less: a unit is never less than a column."""
    return math.floor(time / unit + 0.5 + 1e-6)


def _name(schedule: Schedule, action: Action) -> str:
    letters = string.ascii_letters if schedule.virtual > 1 else [""]
    return f"{action.kind.value}{action.microbatch}{letters[action.stage // schedule.pp % len(letters)]}"
