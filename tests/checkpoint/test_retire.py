"""Checkpoints that give up their optimizer state and keep their parameters."""

import json
from pathlib import Path

import pytest
import torch

from megalite.checkpoint.directory import list_iterations
from megalite.checkpoint.locate import find_checkpoint
from megalite.checkpoint.match import Strictness
from megalite.checkpoint.piece import Piece
from megalite.checkpoint.retire import drop_optimizer_state
from megalite.checkpoint.store import open_store
from megalite.state import Box
from tests.checkpoint.states import assert_state, manager_of, state, world_group
from tests.harness import run_world


def with_momentum(iteration, rank=0, world_size=1):
    """The state, and rows of a momentum: of a world of two, rank 1 alone holds any."""
    momentum = Piece("optim.exp_avg.w", (3,), Box.whole((3,)), torch.full((3,), iteration + 0.5))
    return [*state(iteration, rank, world_size), *([momentum] if rank == world_size - 1 else [])]


def save(rank, world_size, directory, iterations, **fields):
    manager = manager_of(directory, world_group(rank, world_size), verify_integrity=True, **fields)
    for iteration in iterations:
        manager.save(iteration, with_momentum(iteration, rank, world_size), {}, "seed: 1\n")
    manager.close()


def names(path: Path):
    return sorted(entry.name for entry in path.iterdir())


SMALL = ["config.yaml", "index.json", "meta.json"]
SHARDS = ["shard_00000.safetensors", "shard_00001.safetensors"]


@pytest.mark.parametrize("async_save", [False, True])
def test_older_checkpoints_keep_their_parameters(tmp_path, async_save):
    def save_five(rank, world_size):
        retention = {"keep_last_checkpoints": 2, "save_retain_interval": 20, "keep_weights_of_older": True}
        save(rank, world_size, tmp_path, range(10, 60, 10), async_save=async_save, **retention)

    run_world(save_five, 2)
    assert list_iterations(tmp_path) == [10, 20, 30, 40, 50]
    for iteration in (10, 20, 30, 40, 50):
        path = tmp_path / f"iter_{iteration:07d}"
        store = open_store(path)
        whole = iteration in (20, 40, 50)
        assert names(path) == [*SMALL, *(["optim_00001.safetensors"] if whole else []), *SHARDS]
        assert ("optim.exp_avg.w" in store.names()) == whole
        assert store.has_checksums and store.corrupt_files(store.files) == []
        pieces = state(iteration, fill=False)
        manager_of(None, load=path).load(store, pieces, Strictness(unread="optim.exp_avg.w".__eq__))
        assert_state(pieces, iteration)


def test_it_is_complete_when_the_job_dies_between_the_index_and_the_files(tmp_path):
    save(0, 1, tmp_path, [1])
    path = tmp_path / "iter_0000001"
    state_file = path / "optim_00000.safetensors"
    before = state_file.read_bytes()
    drop_optimizer_state(path)
    state_file.write_bytes(before)
    (path / "index.json.new").write_text("half of an ind")
    assert open_store(path).names() == ("count", "norm", "w")
    drop_optimizer_state(path)
    assert names(path) == [*SMALL, SHARDS[0]] and open_store(path).names() == ("count", "norm", "w")


def test_nothing_is_done_twice(tmp_path):
    save(0, 1, tmp_path, [1])
    path = tmp_path / "iter_0000001"
    drop_optimizer_state(path)
    index = path / "index.json"
    written = index.stat().st_mtime_ns
    drop_optimizer_state(path)
    assert index.stat().st_mtime_ns == written
    assert json.loads(index.read_text())["files"].keys() == {"config.yaml", "meta.json", SHARDS[0]}


def test_a_damaged_older_checkpoint_does_not_stop_the_run(tmp_path, caplog):
    save(0, 1, tmp_path, [1])
    (tmp_path / "iter_0000001" / "index.json").write_text("{")
    with caplog.at_level("WARNING", "megalite"):
        save(0, 1, tmp_path, [2], keep_last_checkpoints=1, keep_weights_of_older=True)
    assert "the checkpoint of iteration 1 in" in caplog.text and "index.json is damaged" in caplog.text
    assert find_checkpoint(tmp_path).store.meta["iteration"] == 2
