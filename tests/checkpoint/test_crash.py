"""Jobs killed at random moments of their saves. Whatever is left, the newest complete checkpoint is found and right."""

import itertools
import os
import random
import signal
import time

import pytest

from megalite.checkpoint.locate import find_checkpoint, is_fresh
from megalite.errors import CheckpointError
from tests.checkpoint.states import load_and_check, manager_of, save_all, state, world_group
from tests.harness import WorkerFailed, run_world


def save_until_killed(save, first, writer):
    """Save every iteration twice, by two managers, so that the second replaces the first; report each that is done."""
    for iteration in itertools.count(first):
        for _ in range(2):
            save_all(save, [iteration], keep_last_checkpoints=1, verify_integrity=True)
            os.write(writer, iteration.to_bytes(8, "little"))


def kill_during_saves(save, first, seconds):
    """Run such a job for a while, then kill it. Returns the last iteration that it has reported, or None."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        save_until_killed(save, first, writer)
    os.close(writer)
    done = os.read(reader, 8)  # It has written something by now.
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        done += pipe.read()
    return int.from_bytes(done[-8:], "little")


def test_kill_minus_nine_at_thirty_random_moments(tmp_path):
    rng = random.Random(1234)
    iteration = 0
    for _ in range(30):
        reported = kill_during_saves(tmp_path, iteration, rng.uniform(0, 0.04))
        found = find_checkpoint(tmp_path)
        iteration = found.store.meta["iteration"]
        assert iteration in (reported, reported + 1)
        assert not found.warnings
        load_and_check(tmp_path, iteration, verify_integrity=True)


def test_a_job_killed_in_its_very_first_save_starts_anew(tmp_path):
    pid = os.fork()
    if pid == 0:
        pieces = (piece for piece in state(1))
        manager = manager_of(tmp_path)
        (tmp_path / ".tmp-iter_0000001").mkdir()
        next(pieces)
        os.kill(os.getpid(), signal.SIGKILL)
        manager.save(1, pieces, {}, "")
    os.waitpid(pid, 0)
    assert is_fresh(tmp_path) and manager_of(tmp_path, load=tmp_path).resume() is None
    save_all(tmp_path, [1])
    load_and_check(tmp_path, 1)


def save_until_a_rank_is_killed(rank, world_size, save, first, seconds):
    manager = manager_of(save, world_group(rank, world_size), keep_last_checkpoints=1)
    if rank == 1:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, seconds)
    for iteration in itertools.count(first):
        manager.save(iteration, state(iteration, rank, world_size), {"consumed_samples": 8 * iteration}, "")


def test_one_rank_of_three_is_killed(tmp_path):
    rng = random.Random(5)
    run_world(lambda rank, size: save_all(tmp_path, [0], rank, size), 3)
    iteration = 0
    for _ in range(5):
        with pytest.raises(WorkerFailed):
            run_world(save_until_a_rank_is_killed, 3, tmp_path, iteration + 1, rng.uniform(0.001, 0.1))
        found = find_checkpoint(tmp_path)
        assert found.store.meta["iteration"] >= iteration and not found.warnings
        iteration = found.store.meta["iteration"]
        load_and_check(tmp_path, iteration)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("name", ["index.json", "meta.json", "config.yaml", "shard_00000.safetensors"])
def test_truncated_files_of_the_newest_checkpoint_are_never_loaded(tmp_path, name, share):
    save_all(tmp_path, [1, 2])
    path = tmp_path / "iter_0000002" / name
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    load_and_check(tmp_path, 1)


def test_flipped_bits_are_never_loaded_when_integrity_is_verified(tmp_path):
    """Any file, any bit: the checkpoint is refused or an older one taken, or (in the index) the bit did not matter."""
    save_all(tmp_path, [1, 2], verify_integrity=True)
    rng = random.Random(7)
    for name in sorted(path.name for path in (tmp_path / "iter_0000002").iterdir()):
        path = tmp_path / "iter_0000002" / name
        original = path.read_bytes()
        for _ in range(25):
            flipped = bytearray(original)
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            path.write_bytes(flipped)
            try:
                store = manager_of(None, load=tmp_path, verify_integrity=True).resume()
                load_and_check(tmp_path, store.meta["iteration"], verify_integrity=True)
                assert store.meta["iteration"] == 1 or name == "index.json"
            except CheckpointError as error:
                assert name in str(error) or name == "index.json"
        path.write_bytes(original)
