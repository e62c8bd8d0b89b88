"""A timed schedule in the trace format that chrome://tracing and https://ui.perfetto.dev open."""

from megalite.schedule.actions import Schedule
from megalite.schedule.simulate import Timeline

_MICROSECONDS_PER_UNIT = 1000.0


def chrome_trace(schedule: Schedule, timeline: Timeline) -> dict:
    """The trace as a JSON object: one row per rank; one unit of cost is shown as a millisecond."""
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(schedule.pp)
    ]
    computes = [
        {
            "name": str(span.action),
            "cat": span.action.kind.name,
            "ph": "X",
            "pid": 0,
            "tid": rank,
            "ts": span.start * _MICROSECONDS_PER_UNIT,
            "dur": (span.end - span.start) * _MICROSECONDS_PER_UNIT,
            "args": {"stage": span.action.stage, "microbatch": span.action.microbatch},
        }
        for rank, spans in enumerate(timeline.spans)
        for span in spans
    ]
    return {"traceEvents": names + computes, "displayTimeUnit": "ms", "otherData": {"schedule": str(schedule)}}
