"""From a schedule's name to the lists that the ranks run."""

import inspect

from megalite import plugins
from megalite.errors import ScheduleError
from megalite.schedule.actions import Schedule
from megalite.schedule.lower import lower
from megalite.schedule.verify import check_computes, verify

BUILDERS = "megalite.schedule.builders"
_FILES = {"1f1b": "one_f_one_b"}
"""Usual names that cannot be the name of a Python file."""


def plan(name: str, pp: int, virtual: int, num_microbatches: int, **options: int | None) -> Schedule:
    """Build, lower and verify schedule ``name`` for ``pp`` ranks of ``virtual`` stages each.

    ``auto`` is 1F1B, interleaved if there are several stages per rank. ``options`` go to the builder; those that are
    None are left out. Raises :class:`ConfigError` for an unknown name, :class:`ScheduleError` for a request that the
    builder cannot meet and for a builder that is wrong.
    """
    for what, number in (("pipeline rank", pp), ("virtual stage per rank", virtual), ("micro-batch", num_microbatches)):
        if number < 1:
            raise ScheduleError(f"a schedule needs at least 1 {what}; given {number}: raise it.")
    if name == "auto":
        name = "1f1b" if virtual == 1 else "interleaved"
    build = plugins.load(BUILDERS, _FILES.get(name, name), "--pipeline-schedule").build
    given = {option: value for option, value in options.items() if value is not None}
    accepted = list(inspect.signature(build).parameters)[3:]
    for option, value in given.items():
        if option not in accepted:
            raise ScheduleError(
                f"schedule {name} takes {', '.join(accepted) or 'no options'}; given {option}={value}: leave it out "
                f"or choose another --pipeline-schedule."
            )
    schedule = build(pp, virtual, num_microbatches, **given)
    check_computes(schedule)
    lowered = lower(schedule)
    verify(lowered)
    return lowered
