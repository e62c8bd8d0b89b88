import re
import resource
import time

import pytest
import torch
import torch.distributed as dist

from megalite.checkpoint import writer
from megalite.checkpoint.directory import list_iterations
from megalite.checkpoint.piece import Piece
from megalite.errors import CheckpointError
from megalite.parallel.collectives import all_reduce
from megalite.parallel.group import Group
from megalite.state import Box
from tests.checkpoint.states import load_and_check, manager_of, save_all, state, world_group
from tests.harness import run_world


def files(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def own_group(rank, world_size):
    """A group of all ranks besides the one that training uses."""
    if world_size == 1:
        return Group.single("checkpoint")
    ranks = tuple(range(world_size))
    return Group("checkpoint", rank, ranks, dist.new_group(list(ranks)))


def save_while_training(rank, world_size, save):
    """Save at once after each "step", which changes every tensor in place, while other collectives are going on."""
    manager = manager_of(save, own_group(rank, world_size), async_save=True)
    world = world_group(rank, world_size)
    pieces = state(0, rank, world_size)
    for iteration in range(1, 6):
        for piece, new in zip(pieces, state(iteration, rank, world_size), strict=True):
            piece.tensor.copy_(new.tensor)
        manager.save(iteration, pieces, {"consumed_samples": 8 * iteration}, "seed: 1\n")
        for piece in pieces:
            piece.tensor.fill_(-2)
        total = all_reduce(torch.ones(1), world)
        assert total.item() == world_size
    manager.close()


@pytest.mark.parametrize("world_size", [1, 3])
def test_what_is_saved_is_the_state_at_the_call_and_the_bytes_are_those_of_a_plain_save(tmp_path, world_size):
    run_world(save_while_training, world_size, tmp_path / "a")
    run_world(lambda rank, size: save_all(tmp_path / "s", range(1, 6), rank, size), world_size)
    assert list_iterations(tmp_path / "a") == [1, 2, 3, 4, 5]
    for iteration in range(1, 6):
        name = f"iter_{iteration:07d}"
        assert files(tmp_path / "a" / name) == files(tmp_path / "s" / name)


def fail_in_the_background(rank, world_size, save):
    manager = manager_of(save, own_group(rank, world_size), async_save=True)
    manager.save(1, state(1, rank, world_size), {"consumed_samples": 8}, "")
    manager.wait()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = Piece(f"big{rank}", (1 << 16,), Box.whole((1 << 16,)), torch.zeros(1 << 16))
    outcomes = []
    for notice in (manager.wait, lambda: manager.save(3, [], {}, ""), manager.close):
        if rank == world_size - 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, hard))
        manager.save(2, [big, *state(2, rank, world_size)], {}, "")
        with pytest.raises(CheckpointError) as caught:
            notice()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        outcomes.append(str(caught.value))
        assert manager.wait() is None and not manager.busy, "a failure is told once"
    load_and_check(save, 1, rank, world_size)
    return outcomes


@pytest.mark.parametrize("world_size, where", [(1, ""), (2, r" \(rank 1\)")])
def test_a_failure_surfaces_at_the_next_call_and_the_earlier_checkpoint_stays(tmp_path, world_size, where):
    for outcomes in run_world(fail_in_the_background, world_size, tmp_path):
        assert len(outcomes) == 3 and len(set(outcomes)) == 1
        assert re.search(rf"iteration 2 could not be written .*: File too large{where}$", outcomes[0])
    assert list_iterations(tmp_path) == [1]


def test_waiting_for_an_earlier_save_is_time_that_training_waited(tmp_path, monkeypatch):
    write_shard = writer.write_shard
    monkeypatch.setattr(writer, "write_shard", lambda *args: (time.sleep(0.3), write_shard(*args))[1])
    manager = manager_of(tmp_path, async_save=True)
    stalls = []
    for iteration in (1, 2, 3):
        stalls.append(manager.wait())
        manager.save(iteration, state(iteration), {}, "")
    stalls.append(manager.wait())
    manager.close()
    assert [saved.stalled_seconds > 0.25 for saved in stalls[1:]] == [False, True, True]
    assert all(saved.seconds > saved.stalled_seconds + 0.25 for saved in stalls[1:])


def test_a_rank_is_busy_until_the_checkpoint_can_be_loaded(tmp_path):
    manager = manager_of(tmp_path, async_save=True)
    assert not manager.busy and manager.save(1, state(1), {"consumed_samples": 8}, "seed: 1\n") is None
    while manager.busy:
        torch.randn(100).sort()
    load_and_check(tmp_path, 1)
    saved = manager.wait()
    assert saved.iteration == 1 and saved.num_bytes == sum(p.stat().st_size for p in tmp_path.glob("*/*.safetensors"))
    assert 0 < saved.stalled_seconds < saved.seconds
    assert manager.wait() is None
    manager.close()
