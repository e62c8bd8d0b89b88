"""Saving while training goes on, on a signal, on a full disk; what is kept, and what a run that breaks off leaves."""

import os
import resource
import shlex
import signal
import time
from dataclasses import replace

import pytest
import torch

from megalite.checkpoint import writer
from megalite.checkpoint.directory import list_iterations
from megalite.checkpoint.store import open_store
from megalite.errors import CheckpointError
from megalite.train import loop
from megalite.train import pretrain as program
from megalite.train.hooks import Hook, HookList
from tests.e2e.launch import Running, curve, events, flags, torchrun, trained
from tests.harness import WorkerFailed

STEPS = 8
FULL = 64 << 10
"""A limit on the size of files that a checkpoint of the tiny model does not keep to, and the metrics do."""


def options(corpus, directory, **fields):
    numbers = {"train_iters": STEPS, "hidden_dropout": 0.1, "save_interval": 3, "use_distributed_optimizer": True}
    files = {
        "save": directory / "checkpoints",
        "load": directory / "checkpoints",
        "metrics_file": directory / "metrics.jsonl",
    }
    return flags(data_path=corpus, **{**numbers, **files, **fields})


def checkpoint(directory, iteration):
    """Every tensor of a checkpoint, by name."""
    store = open_store(directory / "checkpoints" / f"iter_{iteration:07d}")
    return {name: store.read(name) for name in store.names()}


def assert_equal(tensors, others):
    assert tensors.keys() == others.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], others[name])] == []


def saved(directory):
    """Iterations that the run has reported as saved."""
    return [event["iteration"] for event in events(directory / "metrics.jsonl", "save")]


@pytest.fixture(scope="module")
def straight(corpus, tmp_path_factory):
    """Two data-parallel ranks save after 3, 6 and 8 steps, while training waits."""
    directory = tmp_path_factory.mktemp("straight")
    trained(2, options(corpus, directory))
    return directory


class At(Hook):
    """Does something on rank 0 after some steps, in the midst of everything that follows the step."""

    def __init__(self, actions):
        self._actions = actions

    def on_step(self, result):
        self._actions.get(result.iteration, int)()


@pytest.fixture
def at(monkeypatch):
    """A function that takes what is to be done after which step."""
    build = program.build_hooks
    return lambda actions: monkeypatch.setattr(program, "build_hooks", lambda run: HookList([build(run), At(actions)]))


@pytest.fixture
def slow_disk(monkeypatch):
    """Every shard takes half a second longer than all the steps of the run together."""
    write_shard = writer.write_shard
    monkeypatch.setattr(writer, "write_shard", lambda *args: (time.sleep(0.5), write_shard(*args))[1])


def limit_files(num_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def no_limit():
    limit_files(resource.RLIM_INFINITY)


@pytest.mark.parametrize("layout", [{}, {"pipeline_model_parallel_size": 2}], ids=["data 2", "pipeline 2"])
def test_asynchronous_saves_hold_the_same_and_change_nothing(straight, corpus, tmp_path, capfd, layout):
    trained(2, options(corpus, tmp_path, async_save=True, verify_integrity=True, **layout))
    assert saved(tmp_path) == [3, 6, 8]
    if not layout:
        assert curve(tmp_path / "metrics.jsonl") == curve(straight / "metrics.jsonl")
        for iteration in (3, 6, 8):
            assert_equal(checkpoint(tmp_path, iteration), checkpoint(straight, iteration))
    for event in events(tmp_path / "metrics.jsonl", "save"):
        assert 0 < event["stalled_seconds"] < event["seconds"] and event["num_bytes"] > 100_000
    out = capfd.readouterr().out
    assert out.count("successfully saved checkpoint from iteration") == out.count(" s, of which training waited ") == 3


def test_training_goes_on_while_a_checkpoint_is_written(straight, corpus, tmp_path, slow_disk):
    """The next save waits for it, and the end for the last one."""
    trained(2, options(corpus, tmp_path, async_save=True, save_interval=5))
    metrics = tmp_path / "metrics.jsonl"
    steps = {event["iteration"]: event["time"] for event in events(metrics, "train")}
    saves = {event["iteration"]: event["time"] for event in events(metrics, "save")}
    assert list(saves) == [5, 8] and steps[6] < saves[5] < saves[8]
    assert curve(tmp_path / "metrics.jsonl") == curve(straight / "metrics.jsonl")
    assert_equal(checkpoint(tmp_path, 8), checkpoint(straight, 8))


def test_a_loss_that_is_not_finite_leaves_the_checkpoint_that_is_being_written(
    corpus, tmp_path, slow_disk, monkeypatch
):
    train_step = loop.train_step

    def diverge(engine, *args):
        outcome = train_step(engine, *args)
        if engine.optimizer.num_updates == 4:
            return replace(outcome, loss=float("nan"), finite=False)
        return outcome

    monkeypatch.setattr(loop, "train_step", diverge)
    with pytest.raises(WorkerFailed) as caught:
        trained(2, options(corpus, tmp_path, async_save=True))
    assert "in step 4 the loss was nan" in str(caught.value)
    assert f"The last good checkpoint is that of step 3 in {tmp_path}/checkpoints." in str(caught.value)
    assert list_iterations(tmp_path / "checkpoints") == [3]


def test_a_signal_to_stop_waits_for_the_checkpoint_that_is_being_written(straight, corpus, tmp_path, slow_disk, at):
    at({4: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    trained(2, options(corpus, tmp_path, async_save=True, exit_signal_handler=True))
    assert saved(tmp_path) == list_iterations(tmp_path / "checkpoints") == [3, 4]
    assert_equal(checkpoint(tmp_path, 3), checkpoint(straight, 3))
    trained(2, options(corpus, tmp_path, async_save=True))
    assert curve(tmp_path / "metrics.jsonl") == curve(straight / "metrics.jsonl")


@pytest.mark.parametrize("async_save", [False, True])
def test_sigusr1_saves_and_training_goes_on(straight, corpus, tmp_path, at, async_save):
    """Sent to one rank. What comes when a checkpoint is due is one and the same."""
    at(dict.fromkeys((2, 6), lambda: os.kill(os.getpid(), signal.SIGUSR1)))
    trained(2, options(corpus, tmp_path, async_save=async_save, eval_interval=2, eval_iters=1))
    assert saved(tmp_path) == [2, 3, 6, 8]
    assert curve(tmp_path / "metrics.jsonl") == curve(straight / "metrics.jsonl")
    assert_equal(checkpoint(tmp_path, 6), checkpoint(straight, 6))


def test_the_job_script_of_the_documentation_lives_on(corpus, tmp_path):
    """SIGUSR1 to torchrun and to a rank, then SIGTERM."""
    argv = options(corpus, tmp_path, train_iters=5000, save_interval=5000, exit_signal_handler=True)
    torchrun_line = shlex.join(map(str, torchrun(2, argv)))
    with Running(["bash", "-c", f"trap '' USR1\n{torchrun_line}"]) as job:
        job.wait_for("iteration        2/")
        for rank in (None, 1):
            job.send(signal.SIGUSR1, rank)
        job.wait_for("successfully saved checkpoint")
        job.send(signal.SIGTERM, rank=1)
        done = job.finish(timeout=90)
    first, last = saved(tmp_path)
    assert done.status == 0 and f"stopped after iteration {last}: a signal asked for it" in done.out and first < last


@pytest.mark.parametrize("async_save", [False, True])
def test_a_full_disk_ends_the_run_and_harms_no_earlier_checkpoint(straight, corpus, tmp_path, at, async_save):
    at({5: lambda: limit_files(FULL)})
    with pytest.raises(WorkerFailed) as caught:
        trained(2, options(corpus, tmp_path, async_save=async_save))
    assert "the checkpoint of iteration 6 could not be written to --save" in str(caught.value)
    assert "File too large (rank 0)" in str(caught.value)
    assert saved(tmp_path) == list_iterations(tmp_path / "checkpoints") == [3]
    assert max(curve(tmp_path / "metrics.jsonl")) in ((6, 7, 8) if async_save else (6,))
    at({})
    trained(2, options(corpus, tmp_path))
    assert curve(tmp_path / "metrics.jsonl") == curve(straight / "metrics.jsonl")


@pytest.mark.parametrize("async_save", [False, True])
def test_training_goes_on_without_a_checkpoint_where_it_is_told_to(straight, corpus, tmp_path, capfd, at, async_save):
    at({1: lambda: limit_files(FULL), 5: no_limit})
    trained(2, options(corpus, tmp_path, async_save=async_save, continue_on_save_failure=True))
    assert saved(tmp_path) == list_iterations(tmp_path / "checkpoints") == [6, 8]
    assert curve(tmp_path / "metrics.jsonl") == curve(straight / "metrics.jsonl")
    assert capfd.readouterr().out.count("warning: the checkpoint of iteration 3 could not be written") == 1


@pytest.mark.parametrize("async_save", [False, True])
def test_the_last_checkpoint_must_be_written_even_so(corpus, tmp_path, at, async_save):
    at({4: lambda: limit_files(FULL)})
    with pytest.raises(WorkerFailed, match="the checkpoint of iteration 8 could not be written"):
        trained(2, options(corpus, tmp_path, async_save=async_save, continue_on_save_failure=True))
    assert list_iterations(tmp_path / "checkpoints") == [3]


def test_older_checkpoints_keep_their_weights(corpus, tmp_path, failing):
    trained(2, options(corpus, tmp_path, keep_last_checkpoints=1, keep_weights_of_older=True))
    optimizer_state = {i: [n for n in checkpoint(tmp_path, i) if n.startswith("optim.")] for i in (3, 6, 8)}
    assert {i for i, names in optimizer_state.items() if names} == {8}
    again = {"save": None, "save_interval": None, "load": tmp_path / "checkpoints", "ckpt_step": 6}
    assert "--keep-weights-of-older" in failing(CheckpointError, options(corpus, tmp_path, **again))
    trained(1, options(corpus, tmp_path, no_load_optim=True, **again))


def test_a_flipped_bit_is_refused_by_name(corpus, tmp_path, failing):
    trained(2, options(corpus, tmp_path, verify_integrity=True, train_iters=3))
    path = tmp_path / "checkpoints" / "iter_0000003" / "optim_00001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    error = failing(CheckpointError, options(corpus, tmp_path, verify_integrity=True))
    assert "optim_00001.safetensors no longer hold what was written (checksums differ)" in error
