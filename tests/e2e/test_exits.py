"""Stopping early: all ranks after the same step, one checkpoint, and nothing lost."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from megalite.train import pretrain as program
from megalite.train.hooks import Hook, HookList
from megalite.train.loop import TrainingLoop
from tests.e2e.launch import Running, curve, events, flags, torchrun, trained

STEPS = 8


def options(corpus, directory, **fields):
    numbers = {"train_iters": STEPS, "hidden_dropout": 0.1, "exit_signal_handler": True, "save_interval": 5}
    checkpoints, metrics_file = directory / "checkpoints", directory / "metrics.jsonl"
    files = {"save": checkpoints, "load": checkpoints, "metrics_file": metrics_file}
    return flags(data_path=corpus, **{**numbers, **files, **fields})


class Terminate(Hook):
    """Sends this process SIGTERM at one moment of one iteration."""

    def __init__(self, moment, iteration):
        self._moment, self._iteration = moment, iteration

    def on_step(self, result):
        self._pass("step", result.iteration)

    def on_log(self, summary):
        self._pass("evaluation", summary.last.iteration)  # which follows

    def on_save(self, saved):
        self._pass("save", saved.iteration)

    def _pass(self, moment, iteration):
        if (moment, iteration) == (self._moment, self._iteration):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def straight(corpus, tmp_path_factory):
    directory = tmp_path_factory.mktemp("straight")
    trained(2, options(corpus, directory))
    return curve(directory / "metrics.jsonl")


@pytest.mark.parametrize("moment, iteration", [("step", 3), ("evaluation", 4), ("save", 5)])
def test_a_signal_to_one_rank_during(corpus, tmp_path, monkeypatch, straight, moment, iteration):
    """Rank 0 alone gets it; both stop after that step, an evaluation is given up, and the resumed run is exact."""
    build = program.build_hooks
    with monkeypatch.context() as patch:
        patch.setattr(program, "build_hooks", lambda run: HookList([build(run), Terminate(moment, iteration)]))
        trained(2, options(corpus, tmp_path, eval_interval=4, eval_iters=50))
    metrics = tmp_path / "metrics.jsonl"
    assert [(e["iteration"], e["reason"]) for e in events(metrics, "exit")] == [(iteration, "signal")]
    assert [e["iteration"] for e in events(metrics, "save")] == [iteration]
    assert [e["iteration"] for e in events(metrics, "eval")] == ([4] if moment == "save" else [])
    assert os.listdir(tmp_path / "checkpoints") and max(curve(metrics)) == iteration
    trained(2, options(corpus, tmp_path))
    assert curve(metrics) == straight


@pytest.mark.parametrize("rank", [None, 1], ids=["torchrun", "rank 1"])
def test_sigterm_to(corpus, tmp_path, rank):
    """torchrun passes it on, then reports itself as terminated; a rank alone takes the others along in good order."""
    argv = options(corpus, tmp_path, train_iters=2000, save_interval=2000)
    with Running(torchrun(2, argv)) as job:
        job.wait_for("iteration        3/")
        job.send(signal.SIGTERM, rank)
        done = job.finish(timeout=90)
    assert (done.status == 0) == (rank == 1), done.err
    last = max(curve(tmp_path / "metrics.jsonl"))
    assert f"stopped after iteration {last}: a signal asked for it" in done.out
    assert [path.name for path in (tmp_path / "checkpoints").glob("iter_*")] == [f"iter_{last:07d}"]
    assert done.out.count("successfully saved checkpoint") == 1


def test_without_the_flag_a_signal_ends_the_job(corpus, tmp_path):
    with Running(torchrun(2, flags(data_path=corpus, train_iters=2000))) as job:
        job.wait_for("iteration        2/")
        job.send(signal.SIGTERM, rank=1)
        done = job.finish(timeout=60)
    assert done.status != 0 and "SIGTERM" in done.err.partition("Root Cause")[2]


def test_the_duration_includes_what_comes_before_training(corpus, tmp_path, monkeypatch):
    """Reading the data of a large run may take longer than what a job has left."""
    now = time.monotonic
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: now() - 61))
    metrics = tmp_path / "metrics.jsonl"
    assert program.pretrain(flags(data_path=corpus, exit_duration_in_mins=1, metrics_file=metrics)) == 0
    (end,) = events(metrics, "exit")
    assert (end["iteration"], end["reason"]) == (1, "duration")


@pytest.mark.parametrize("moment", ["start", "test evaluation"])
def test_the_signal_to_save_is_nothing_outside_of_training(corpus, tmp_path, monkeypatch, moment):
    build_engine, evaluate = program.build_engine, TrainingLoop.evaluate

    def signalled(when, function):
        def call(*args):
            if when == moment:
                os.kill(os.getpid(), signal.SIGUSR1)
            return function(*args)

        return call

    former = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        monkeypatch.setattr(program, "build_engine", signalled("start", build_engine))
        monkeypatch.setattr(TrainingLoop, "evaluate", signalled("test evaluation", evaluate))
        fields = {"save_interval": 100, "train_iters": 2, "eval_iters": 1, "split": "80,10,10"}
        assert program.pretrain(options(corpus, tmp_path, **fields)) == 0
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert [event["iteration"] for event in events(tmp_path / "metrics.jsonl", "save")] == [2]
    assert {event["name"] for event in events(tmp_path / "metrics.jsonl", "eval")} == {"validation", "test"}
