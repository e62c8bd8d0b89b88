import json

from megalite.schedule.plan import plan
from megalite.schedule.simulate import Costs, simulate
from megalite.schedule.trace import chrome_trace


def test_trace_has_a_named_row_per_rank_and_a_span_per_compute():
    schedule = plan("1f1b", 2, 1, 2)
    trace = json.loads(json.dumps(chrome_trace(schedule, simulate(schedule, Costs(1, 2)))))
    events = trace["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {0: "rank 0", 1: "rank 1"}
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 8
    backward = next(event for event in spans if event["name"] == "B1.0")
    assert (backward["tid"], backward["ts"], backward["dur"]) == (1, 2000, 2000)
    assert backward["args"] == {"stage": 1, "microbatch": 0} and backward["cat"] == "B"
