import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.train.memory import Memory
from megalite.train.metrics import Interval
from tests.train.samples import make_eval, make_run, make_step, make_summary


def test_summary_worked_by_hand():
    run = make_run(world_size=2, train_iters=10, peak_tflops=1e-6)
    summary = make_summary(
        run,
        make_step(3, loss=2.0, seconds=0.5, num_tokens=20),
        make_step(4, loss=9.0, seconds=1.0, num_tokens=24, skipped=True),
        make_step(5, loss=2.5, seconds=0.25, num_tokens=23),
        make_step(6, loss=math.nan, seconds=0.25, num_tokens=24, skipped=True, nan=True),
        make_step(7, loss=3.0, seconds=0.5, num_tokens=24),
        rss=1000,
    )
    assert summary.last.iteration == 7 and summary.train_iters == 10
    assert summary.loss == 2.5  # of the three steps that were not skipped
    assert (summary.num_iterations, summary.num_skipped, summary.num_nan) == (5, 2, 1)
    assert (summary.num_samples, summary.num_tokens) == (30, 115)
    assert summary.seconds == 2.5 and summary.seconds_per_iteration == 0.5
    assert summary.throughput.tokens_per_second == 48.0  # 30 samples of 4 tokens in 2.5 s
    # 30 samples of 40320 FLOPs over 2.5 s and 2 devices are 241920 FLOP/s; the peak is 1e6
    assert summary.throughput.tflops_per_gpu == pytest.approx(2.4192e-7)
    assert summary.throughput.mfu == pytest.approx(0.24192)
    assert summary.eta_seconds == pytest.approx(1.5)  # 18 samples are left at 12 a second
    assert summary.memory.headline == 1000


def test_loss_is_shown_as_it_was_when_every_step_was_skipped():
    run = make_run()
    assert math.isnan(make_summary(run, make_step(1, loss=math.nan, skipped=True, nan=True)).loss)
    overflow = make_step(2, loss=4.0, grad_norm=math.inf, skipped=True, nan=True)
    assert make_summary(run, make_step(1, loss=3.0, skipped=True, nan=True), overflow).loss == 4.0


def test_peak_comes_from_the_device_and_the_flag_wins():
    step = make_step(1)
    h100 = make_summary(make_run("NVIDIA H100 80GB HBM3"), step).throughput
    assert h100.mfu == pytest.approx(h100.tflops_per_gpu / 989.4)
    flag = make_summary(make_run("NVIDIA H100 80GB HBM3", peak_tflops=100.0), step).throughput
    assert flag.mfu == pytest.approx(flag.tflops_per_gpu / 100)
    assert make_summary(make_run("cpu"), step).throughput.mfu is None


def test_eta_is_zero_after_the_last_step():
    assert make_summary(make_run(train_iters=3), make_step(3)).eta_seconds == 0


@pytest.mark.parametrize("loss, expected", [(0.0, 1.0), (2.0, 7.3890561), (25.0, 485165195.4), (math.inf, 485165195.4)])
def test_perplexity(loss, expected):
    assert make_eval(loss=loss).perplexity == pytest.approx(expected)


def test_perplexity_of_nan_is_nan():
    assert math.isnan(make_eval(loss=math.nan).perplexity)


def test_bits_per_byte():
    """A loss of ln 2 is one bit a token; at 4 bytes a token that is a quarter of a bit a byte."""
    assert make_eval(loss=math.log(2.0), tokens_per_byte=0.25).bits_per_byte == pytest.approx(0.25)
    assert make_eval(loss=3 * math.log(2.0), tokens_per_byte=0.5).bits_per_byte == pytest.approx(1.5)
    assert make_eval(loss=1.0).bits_per_byte is None


def test_timers_reach_the_summary():
    timers = {"optimizer": (0.1, 0.2)}
    assert make_summary(make_run(), make_step(1), timers=timers).timers == timers


def test_lines_of_a_run_of_ten_steps():
    assert _lines(log_interval=3, start=0, batches=[6] * 10) == [[1], [2, 3], [4, 5, 6], [7, 8, 9], [10]]
    assert _lines(log_interval=1, start=7, batches=[6] * 3) == [[8], [9], [10]]


@given(
    log_interval=st.integers(1, 7),
    start=st.integers(0, 20),
    batches=st.lists(st.integers(1, 9), min_size=1, max_size=30),
)
def test_each_step_is_in_exactly_one_line(log_interval, start, batches):
    lines = _lines(log_interval, start, batches)
    assert sum(lines, []) == list(range(start + 1, start + len(batches) + 1))
    assert len(lines[0]) == 1
    assert all(line[-1] % log_interval == 0 for line in lines[1:-1])


def _lines(log_interval, start, batches):
    """The iterations of each log line of a loop that resumes after ``start`` steps, checked against the summaries."""
    interval = Interval(make_run(log_interval=log_interval, train_iters=start + len(batches)))
    lines, consumed, logged = [[]], 0, 0
    for offset, batch in enumerate(batches, 1):
        consumed += batch
        interval.add(make_step(start + offset, global_batch_size=batch))
        lines[-1].append(start + offset)
        if interval.due or offset == len(batches):
            assert len(interval) == len(lines[-1])
            logged += interval.close(Memory(1)).num_samples
            assert logged == consumed and len(interval) == 0
            lines.append([])
    return lines[:-1]
