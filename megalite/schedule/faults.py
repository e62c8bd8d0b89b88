"""Shows a schedule at the place where it goes wrong."""

from typing import Mapping

from megalite.errors import ScheduleError
from megalite.schedule.actions import Schedule

_BEFORE, _AFTER = 6, 5
"""Actions shown on either side of the fault."""


def fault(
    schedule: Schedule, sentence: str, steps: Mapping[int, int], notes: Mapping[int, str] | None = None
) -> ScheduleError:
    """An error that says what is wrong and prints the rank-by-step grid with an arrow at the fault.

    ``steps`` gives, for each rank that takes part in the fault, the index in its list (its length: the end); ``notes``
    is written beside the arrow. The other ranks are shown around the same step.
    """
    width = 1 + max((len(str(action)) for actions in schedule.ranks for action in actions), default=1)
    anywhere = min(steps.values())
    rows = []
    for rank, actions in enumerate(schedule.ranks):
        step = steps.get(rank, min(anywhere, len(actions)))
        first = max(0, step - _BEFORE)
        cells = "".join(str(action).ljust(width) for action in actions[first : step + _AFTER + 1])
        arrow = " " * ((step - first) * width) + "^ " + (notes or {}).get(rank, "") if rank in steps else None
        rows.append((f"rank {rank}, from step {first}: ", cells, arrow))
    margin = max(len(label) for label, _, _ in rows)
    lines = [sentence, f"Schedule {schedule}:"]
    for label, cells, arrow in rows:
        lines.append((label.ljust(margin) + cells).rstrip())
        if arrow is not None:
            lines.append((" " * margin + arrow).rstrip())
    return ScheduleError("\n".join(lines))
