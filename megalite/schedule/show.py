"""``tools/show_schedule.py``: prints a schedule's grid and its figures."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Sequence

from megalite import plugins
from megalite.errors import ConfigError
from megalite.log import echo
from megalite.schedule.actions import Schedule
from megalite.schedule.plan import BUILDERS, plan
from megalite.schedule.render import render
from megalite.schedule.simulate import Costs, Timeline, simulate
from megalite.schedule.text import render_actions
from megalite.schedule.trace import chrome_trace


def main(arguments: Sequence[str] | None = None) -> None:
    """Body of the tool; ``arguments`` default to the command line."""
    options = _parser().parse_args(arguments)
    schedule = plan(
        options.schedule,
        options.pp,
        options.virtual,
        options.num_microbatches,
        microbatch_group_size=options.microbatch_group_size,
    )
    costs = Costs(_cost(options.forward_cost), _cost(options.backward_cost), options.send_cost)
    timeline = simulate(schedule, costs)
    width = options.width or shutil.get_terminal_size((120, 24)).columns
    echo(f"{schedule}; forward {options.forward_cost}, backward {options.backward_cost}, send {options.send_cost:g}\n")
    echo(render(schedule, timeline, width))
    echo(_figures(schedule, timeline))
    if options.actions:
        echo("\n" + render_actions(schedule).rstrip())
    if options.trace:
        _write_trace(options.trace, schedule, timeline)


def _figures(schedule: Schedule, timeline: Timeline) -> str:
    p, m, v = schedule.pp, schedule.num_microbatches, schedule.virtual
    formula = (p - 1) / (v * m + p - 1)
    lines = [
        f"makespan {timeline.makespan:g}",
        f"bubble   {timeline.bubble:.4f} of the makespan; (p-1)/(vm+p-1) = {formula:.4f}",
        "rank  bubble  peak live activations (stage inputs)",
    ]
    for rank, (bubble, live) in enumerate(zip(timeline.bubbles, timeline.peak_live)):
        lines.append(f"{rank:>4}  {bubble:.4f}  {live}")
    return "\n".join(lines)


def _write_trace(path: Path, schedule: Schedule, timeline: Timeline) -> None:
    try:
        path.write_text(json.dumps(chrome_trace(schedule, timeline)))
    except OSError as error:
        raise ConfigError(f"--trace must name a file that can be written; {error}.") from error
    echo(f"\ntrace written to {path}: open it at chrome://tracing or https://ui.perfetto.dev")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Print the grid of a pipeline schedule, its bubble and its memory.")
    names = ", ".join(plugins.available(BUILDERS))
    parser.add_argument(
        "--schedule", default="auto", help=f"auto, 1f1b, or a file of megalite/schedule/builders: {names}"
    )
    parser.add_argument("--pp", type=int, default=4, help="pipeline ranks")
    parser.add_argument("--virtual", type=int, default=1, help="virtual stages per rank")
    parser.add_argument("--num-microbatches", type=int, default=8, help="micro-batches in a step")
    group_help = "micro-batches that pass through a virtual stage together (interleaved; default: --pp)"
    parser.add_argument("--microbatch-group-size", type=int, help=group_help)
    parser.add_argument("--forward-cost", default="1", help="duration of a forward, or one per virtual stage: 1,1,2,1")
    parser.add_argument("--backward-cost", default="2", help="duration of a backward, or one per virtual stage")
    parser.add_argument("--send-cost", type=float, default=0.0, help="duration of a message")
    parser.add_argument("--width", type=int, help="characters per line (default: the terminal's)")
    parser.add_argument("--actions", action="store_true", help="also print all actions, messages included")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="also write a trace for Perfetto")
    return parser


def _cost(text: str) -> float | tuple[float, ...]:
    try:
        values = tuple(float(value) for value in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"a cost must be a number, or numbers with commas between them, such as 1,1,2,1; given {text!r}."
        ) from error
    return values[0] if len(values) == 1 else values
