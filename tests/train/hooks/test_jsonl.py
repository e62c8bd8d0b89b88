import json
import math

import pytest

from megalite.checkpoint.manager import Saved
from megalite.errors import ConfigError
from megalite.train.exits import ExitReason
from megalite.train.hooks.jsonl import build
from tests.train.samples import make_eval, make_run, make_step, make_summary


def _read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def _without_time(record):
    assert record.pop("time") > 1.7e9
    return record


def test_not_asked_for():
    assert build(make_run()) is None


def test_each_event_is_an_object(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    run = make_run(metrics_file=str(path), peak_tflops=1e-6, iteration=4)
    hook = build(run)
    hook.on_start(run)
    hook.on_step(make_step(5))
    hook.on_log(make_summary(run, make_step(5, loss=2.0), make_step(6, loss=2.5), rss=1000))
    hook.on_eval(make_eval(6, loss=2.25))
    hook.on_save(Saved(6, 1000, 1.5, 0.25))
    hook.on_exit(ExitReason.SIGNAL, 6)
    start, train, evaluation, save, end = map(_without_time, _read(path))  # before the file is closed
    hook.close()
    assert start == {
        "event": "start", "iteration": 4, "consumed_samples": 24, "train_iters": 10, "train_samples": 60,
        "world_size": 2, "device": "cpu",
    }
    # 12 samples of 4 tokens and 40320 FLOPs in 1 s on 2 devices; 24 samples are left
    assert train == {
        "event": "train", "iteration": 6, "consumed_samples": 36, "loss": 2.25, "grad_norm": 1.25, "num_zeros": None,
        "params_norm": None, "learning_rate": 3e-4, "weight_decay": 0.1, "global_batch_size": 6, "loss_scale": 1.0,
        "num_iterations": 2, "num_skipped": 0, "num_nan": 0, "num_samples": 12, "num_tokens": 40, "seconds": 1.0,
        "tokens_per_second": 48.0, "tokens_per_second_per_gpu": 24.0, "tflops_per_gpu": pytest.approx(2.4192e-7),
        "mfu": pytest.approx(0.24192), "memory_bytes": 1000, "eta_seconds": 2.0,
    }
    assert evaluation == {
        "event": "eval", "iteration": 6, "consumed_samples": 36, "name": "validation", "loss": 2.25,
        "perplexity": pytest.approx(9.487736), "bits_per_byte": None, "num_tokens": 96, "seconds": 0.25,
    }
    assert save == {"event": "save", "iteration": 6, "num_bytes": 1000, "seconds": 1.5, "stalled_seconds": 0.25}
    assert end == {"event": "exit", "iteration": 6, "reason": "signal"}


def test_values_that_are_not_finite_stay_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    run = make_run(metrics_file=str(path))
    hook = build(run)
    hook.on_log(make_summary(run, make_step(1, loss=math.nan, grad_norm=math.inf, skipped=True, nan=True)))
    hook.on_eval(make_eval(loss=-math.inf))
    hook.close()
    train, evaluation = _read(path)
    assert (train["loss"], train["grad_norm"], evaluation["loss"]) == ("NaN", "Infinity", "-Infinity")
    assert math.isnan(float(train["loss"])) and float(evaluation["loss"]) == -math.inf


def test_a_resumed_run_appends_and_ends_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    run = make_run(metrics_file=str(path))
    for iteration in (1, 2):
        hook = build(run)
        hook.on_save(Saved(iteration, 1000, 0.5, 0.5))
        hook.close()
    assert [record["iteration"] for record in _read(path)] == [1, 2]
    path.write_bytes(path.read_bytes()[:-5])
    hook = build(run)
    hook.on_save(Saved(3, 1000, 0.5, 0.5))
    hook.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 3 and json.loads(lines[2])["iteration"] == 3


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--metrics-file must be writable; .*: Is a directory\. Give another path"):
        build(make_run(metrics_file=str(tmp_path)))


def test_a_full_disk_is_found_before_training():
    """Later on, it costs the file only: see test_hooks.py."""
    run = make_run(metrics_file="/dev/full")
    hook = build(run)
    with pytest.raises(ConfigError, match="--metrics-file must be writable; /dev/full: No space left on device. Give"):
        hook.on_start(run)
