import math
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from megalite.errors import ConfigError
from megalite.train.hooks.tensorboard import build
from megalite.train.memory import DeviceMemory, Memory
from megalite.train.metrics import Interval
from tests.train.samples import make_eval, make_run, make_step, make_summary


def _scalars(directory) -> dict[str, dict[int, float]]:
    events = EventAccumulator(str(directory)).Reload()
    return {tag: {point.step: point.value for point in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_not_asked_for():
    assert build(make_run()) is None


def test_every_step_has_points_by_iteration_and_by_samples(tmp_path):
    hook = build(make_run(tensorboard_dir=str(tmp_path), world_size=8))
    hook.on_step(make_step(1, loss=4.0, learning_rate=0.5, grad_norm=1.5, loss_scale=1024.0))
    hook.on_step(make_step(2, loss=3.5, learning_rate=0.25, grad_norm=None, num_zeros=7, params_norm=2.5))
    hook.close()
    expected = {
        "lm loss": {1: 4.0, 2: 3.5},
        "learning-rate": {1: 0.5, 2: 0.25},
        "batch-size": {1: 6, 2: 6},
        "grad-norm": {1: 1.5},
        "num-zeros": {2: 7},
        "params-norm": {2: 2.5},
        "loss-scale": {1: 1024.0, 2: 1.0},
        "world-size": {1: 8, 2: 8},
    }
    twins = {f"{tag} vs samples": {6 * i: value for i, value in points.items()} for tag, points in expected.items()}
    assert _scalars(tmp_path) == expected | twins


def test_steps_between_points(tmp_path):
    hook = build(make_run(tensorboard_dir=str(tmp_path), tensorboard_log_interval=3))
    for iteration in range(1, 8):
        hook.on_step(make_step(iteration, loss=float(iteration)))
    hook.close()
    assert _scalars(tmp_path)["lm loss"] == {3: 3.0, 6: 6.0}


def test_interval_figures_are_on_disk_at_once_and_only_those_asked_for(tmp_path):
    run = make_run(tensorboard_dir=str(tmp_path))
    hook = build(run)
    hook.on_log(make_summary(run, make_step(3), make_step(4), timers={"optimizer": (0.5, 0.75)}))
    assert _scalars(tmp_path) == {"iteration-time": {4: 0.5}}
    hook.close()


def test_speed_timers_and_memory(tmp_path):
    flags = dict(log_throughput=True, log_timers_to_tensorboard=True, log_memory_to_tensorboard=True)
    run = make_run(tensorboard_dir=str(tmp_path), **flags)
    hook = build(run)
    hook.on_log(make_summary(run, make_step(4), rss=4096, timers={"optimizer": (0.5, 0.75)}))
    hook.close()
    assert _scalars(tmp_path) == {
        "iteration-time": {4: 0.5},
        "throughput": {4: pytest.approx(2.4192e-7)},  # 6 samples of 40320 FLOPs in half a second on two devices
        "tokens-per-second": {4: 48.0},
        "tokens-per-second-per-gpu": {4: 24.0},
        "optimizer-time": {4: 0.75},
        "mem-rss-bytes": {4: 4096},
    }


def test_memory_of_a_gpu_and_mfu(tmp_path):
    run = make_run(tensorboard_dir=str(tmp_path), log_throughput=True, log_memory_to_tensorboard=True, peak_tflops=1e-6)
    interval = Interval(run)
    interval.add(make_step(4))
    device = DeviceMemory(reserved=8, allocated=4, max_reserved=16, max_allocated=6, num_allocated=3)
    hook = build(run)
    hook.on_log(interval.close(Memory(rss=1, device=device)))
    hook.close()
    scalars = _scalars(tmp_path)
    assert {tag: points[4] for tag, points in scalars.items() if tag.startswith("mem")} == {
        "mem-reserved-bytes": 8,
        "mem-allocated-bytes": 4,
        "mem-max-allocated-bytes": 6,
        "mem-allocated-count": 3,
    }
    assert scalars["mfu"] == {4: pytest.approx(0.24192)}


def test_validation_with_and_without_perplexity(tmp_path):
    for name, with_ppl in (("plain", False), ("ppl", True)):
        hook = build(make_run(tensorboard_dir=str(tmp_path / name), log_validation_ppl_to_tensorboard=with_ppl))
        hook.on_eval(make_eval(8, loss=2.0))
        hook.close()
    loss = {"lm loss validation": {8: 2.0}, "lm loss validation vs samples": {48: 2.0}}
    ppl = pytest.approx(math.exp(2.0))
    assert _scalars(tmp_path / "plain") == loss
    assert _scalars(tmp_path / "ppl") == loss | {
        "lm loss validation ppl": {8: ppl},
        "lm loss validation ppl vs samples": {48: ppl},
    }


def test_bits_per_byte_where_they_are_known(tmp_path):
    hook = build(make_run(tensorboard_dir=str(tmp_path)))
    hook.on_eval(make_eval(8, loss=math.log(2.0), tokens_per_byte=0.25))
    hook.close()
    assert _scalars(tmp_path)["bits per byte validation"] == {8: pytest.approx(0.25)}


def test_a_missing_package_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="needs the tensorboard package, which is not installed: run `pip install"):
        build(make_run(tensorboard_dir=str(tmp_path)))


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"must be a writable directory; .*/file: File exists\. Give another path"):
        build(make_run(tensorboard_dir=str(tmp_path / "file")))
