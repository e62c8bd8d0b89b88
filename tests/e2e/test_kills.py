"""Runs whose ranks are killed at random moments, most of them in a save: the next start goes on from what is whole."""

import random
import signal

import pytest
import torch

from megalite.checkpoint.locate import find_checkpoint
from megalite.checkpoint.store import open_store
from megalite.train.loop import TrainingLoop
from megalite.train.pretrain import pretrain
from tests.e2e.launch import flags, trained
from tests.harness import WorkerFailed, run_world

STEPS = 30
SECONDS = 0.25
"""A victim lives no longer than this in the training loop: some steps."""


def options(corpus, directory, **fields):
    """A run that does little but save; two checkpoints are kept."""
    small = {"num_layers": 2, "global_batch_size": 4, "use_distributed_optimizer": True, "hidden_dropout": 0.1}
    saving = {"train_iters": STEPS, "save_interval": 1, "keep_last_checkpoints": 2, "log_interval": STEPS}
    files = {"save": directory / "checkpoints", "load": directory / "checkpoints"}
    return flags(data_path=corpus, **{**small, **saving, **files, **fields})


def train_with_fuses(rank, world_size, argv, fuses):
    """Train; the ranks in ``fuses`` die so many seconds after the first step, wherever they are, without a word."""
    train = TrainingLoop.train

    def train_with_a_fuse(self, eval_sets):
        signal.setitimer(signal.ITIMER_REAL, fuses.get(rank, 0))
        return train(self, eval_sets)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    TrainingLoop.train = train_with_a_fuse
    pretrain(argv)


def last_tensors(directory):
    store = open_store(directory / "checkpoints" / f"iter_{STEPS:07d}")
    return {name: store.read(name) for name in store.names()}


@pytest.fixture(scope="module")
def straight(corpus, tmp_path_factory):
    """Every tensor of the end of a run that nobody disturbs."""
    directory = tmp_path_factory.mktemp("straight")
    trained(2, options(corpus, directory, save_interval=STEPS))
    return last_tensors(directory)


@pytest.mark.parametrize("async_save", [False, True])
def test_a_run_that_is_killed_again_and_again_ends_as_if_nothing_had_been(straight, corpus, tmp_path, async_save):
    rng = random.Random(async_save)
    argv = options(corpus, tmp_path, async_save=async_save, verify_integrity=True)
    trained(2, [*argv, "--exit-interval", "1"])
    reached = 1
    for victims in ([0], [1], [0, 1]):
        fuse = rng.uniform(0.01, SECONDS)
        # Whichever is seen first: the death, or what it does to the other rank.
        with pytest.raises(WorkerFailed, match="died without a word|by peer"):
            run_world(train_with_fuses, 2, argv, dict.fromkeys(victims, fuse))
        found = find_checkpoint(tmp_path / "checkpoints")
        assert not found.warnings and found.store.corrupt_files(found.store.files) == []
        assert found.store.meta["iteration"] >= reached
        reached = found.store.meta["iteration"]
    trained(2, argv)
    tensors = last_tensors(tmp_path)
    assert tensors.keys() == straight.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], straight[name])] == []
