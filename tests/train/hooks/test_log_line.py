import logging
import math
import re
from datetime import datetime

import pytest

from megalite.checkpoint.manager import Saved
from megalite.log import logger
from megalite.train.exits import ExitReason
from megalite.train.hooks.log_line import build, evaluation_lines, timer_lines, training_line
from megalite.train.memory import DeviceMemory, Memory
from megalite.train.metrics import Interval
from tests.train.samples import make_eval, make_run, make_step, make_summary

NOW = datetime(2026, 3, 4, 5, 6, 7, 89)

# As scripts that read Megatron-LM's logs have it: one expression over the whole line, --log-throughput or not.
MEGATRON_LINE = re.compile(
    r"^ \[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6})\] iteration +(?P<iteration>\d+)/ *(?P<total>\d+) \|"
    r" consumed samples: +(?P<samples>\d+) \| elapsed time per iteration \(ms\): (?P<ms>[\d.]+) \|"
    r"(?: throughput per GPU \(TFLOP/s/GPU\): (?P<tflops>[\d.]+) \|)?"
    r" learning rate: (?P<lr>\d\.\d+E[+-]\d+) \| global batch size: +(?P<batch>\d+) \|"
    r" lm loss: (?P<loss>\d\.\d+E[+-]\d+|NAN|INF) \| loss scale: (?P<scale>[\d.]+) \|"
    r" grad norm: (?P<norm>[\d.]+|nan|inf) \|"
    r"(?: num zeros: (?P<zeros>\d+) \|)?(?: params norm: (?P<params>[\d.]+) \|)?"
    r" number of skipped iterations: +(?P<skipped>\d+) \| number of nan iterations: +(?P<nan>\d+) \|"
)


def _line(*steps, log_throughput=False, **run):
    return training_line(make_summary(make_run(**run), *steps), NOW, log_throughput)


def test_the_whole_line():
    assert _line(make_step(4, loss=2.0), make_step(5, loss=2.25)) == (
        " [2026-03-04 05:06:07.000089] iteration        5/      10 | consumed samples:           30 |"
        " elapsed time per iteration (ms): 500.0 | learning rate: 3.000000E-04 | global batch size:     6 |"
        " lm loss: 2.125000E+00 | loss scale: 1.0 | grad norm: 1.250 | number of skipped iterations:   0 |"
        " number of nan iterations:   0 | tokens/s: 48 | tokens/s/GPU: 24 |"
        " throughput per GPU (TFLOP/s/GPU): 0.0000 | memory (GiB): 1.50 | ETA: 0:00:02 |"  # 2.5 s, to even
    )


def test_megatron_parsers_read_the_line():
    found = MEGATRON_LINE.match(_line(make_step(7, loss=3.5, seconds=0.0625)))
    assert found["time"] == "2026-03-04 05:06:07.000089"
    assert (found["iteration"], found["total"], found["samples"], found["batch"]) == ("7", "10", "42", "6")
    assert (float(found["ms"]), float(found["lr"]), float(found["loss"])) == (62.5, 3e-4, 3.5)
    assert (found["scale"], found["norm"], found["skipped"], found["nan"]) == ("1.0", "1.250", "0", "0")
    assert found["tflops"] is found["zeros"] is found["params"] is None


def test_all_of_megatrons_optional_fields_in_their_places():
    step = make_step(7, num_zeros=12, params_norm=31.0625, loss_scale=65536.0)
    line = _line(step, log_throughput=True)
    found = MEGATRON_LINE.match(line)
    assert (found["zeros"], found["params"], found["scale"]) == ("12", "31.062", "65536.0")
    assert found["tflops"] == "0.0000"
    assert line.count("TFLOP/s/GPU") == 1


def test_tflops_have_one_decimal_on_a_gpu_and_four_on_a_cpu():
    # 6 samples x 40320 FLOPs on one device
    flops = 241920
    for seconds, text in [(flops / 412.34e12, "412.3"), (flops / 1e12, "1.0"), (flops / 0.0312e12, "0.0312")]:
        line = _line(make_step(2, seconds=seconds), world_size=1, log_throughput=True)
        assert MEGATRON_LINE.match(line)["tflops"] == text


def test_mfu_is_shown_where_the_peak_is_known():
    # 241920 FLOPs in half a second on two devices: 2.4192e-7 TFLOP/s a device
    assert " | MFU: 24.2% | " in _line(make_step(2), peak_tflops=1e-6)
    assert "MFU" not in _line(make_step(2))


def test_values_that_are_not_finite_are_shown_as_they_are():
    line = _line(make_step(3, loss=math.nan, grad_norm=math.inf, skipped=True, nan=True))
    found = MEGATRON_LINE.match(line)
    assert (found["loss"], found["norm"], found["skipped"], found["nan"]) == ("NAN", "inf", "1", "1")
    assert math.isnan(float(found["loss"]))
    assert " lm loss: INF |" in _line(make_step(3, loss=math.inf, skipped=True, nan=True))


def test_grad_norm_is_left_out_where_there_is_none():
    assert "grad norm" not in _line(make_step(3, grad_norm=None))


def test_memory_is_what_the_gpu_reserved():
    interval = Interval(make_run())
    interval.add(make_step(1))
    device = DeviceMemory(reserved=2**30, allocated=1, max_reserved=5 * 2**28, max_allocated=1, num_allocated=1)
    line = training_line(interval.close(Memory(rss=2**33, device=device)), NOW, False)
    assert " | memory (GiB): 1.25 | " in line


def test_eta_in_days():
    # 6 samples in half a second, 12 * 200000 s of samples to go
    line = _line(make_step(1), train_iters=400_001)
    assert line.endswith(" | ETA: 2 days, 7:33:20 |")


def test_evaluation_lines():
    text = (
        " validation loss at iteration 8 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 |"
        " tokens: 96 | time (s): 0.2 | "
    )
    assert evaluation_lines(make_eval(8, loss=2.0)).split("\n") == ["-" * (len(text) + 1), text, "-" * (len(text) + 1)]
    assert " test loss at iteration 9 |" in evaluation_lines(make_eval(9, name="test"))
    known = evaluation_lines(make_eval(loss=2.0, tokens_per_byte=0.3))  # 2 nats are 2.8854 bits
    assert " | lm loss PPL: 7.389056E+00 | bits per byte: 0.8656 | tokens: 96 | " in known


def test_timers_in_milliseconds():
    timers = {"forward-backward": (0.25, 0.5), "optimizer": (0.001, 0.0025)}
    summary = make_summary(make_run(), make_step(1), timers=timers)
    assert timer_lines(summary).split("\n") == [
        "(min, max) time across ranks (ms):",
        "    forward-backward ...............................: (250.00, 500.00)",
        "    optimizer ......................................: (1.00, 2.50)",
    ]


@pytest.fixture
def lines():
    """What is logged, message by message."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield messages
    logger.removeHandler(handler)


def test_the_hook_logs_each_event(lines):
    run = make_run(save="runs/a", log_throughput=True)
    hook = build(run)
    hook.on_log(make_summary(run, make_step(5)))
    hook.on_log(make_summary(run, make_step(6), timers={"optimizer": (0.1, 0.2)}))
    hook.on_eval(make_eval(6))
    hook.on_save(Saved(6, 3_456_000_000, 1.26, 1.26))
    hook.on_exit(ExitReason.DURATION, 6)
    assert MEGATRON_LINE.match(lines[0])["tflops"]
    assert MEGATRON_LINE.match(lines[1])["iteration"] == "6"
    assert lines[2].startswith("(min, max)")
    assert " validation loss at iteration 6 " in lines[3]
    assert lines[4] == "  successfully saved checkpoint from iteration       6 to runs/a: 3.46 GB in 1.3 s"
    assert lines[5] == "stopped after iteration 6: --exit-duration-in-mins has passed"
