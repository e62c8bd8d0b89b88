import os
import signal

import pytest

from megalite.errors import CheckpointError
from tests.checkpoint.states import manager_of, save_all, state
from tests.harness import run_world


def start_holder(save):
    """Another job, which holds the directory until it is killed, and a forked worker of it. Returns both ids."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        manager_of(save)
        worker = os.fork()
        if worker:
            os.write(writer, worker.to_bytes(8, "little"))
        signal.pause()
    os.close(writer)
    worker = int.from_bytes(os.read(reader, 8), "little")
    os.close(reader)
    return pid, worker


def test_a_second_job_is_refused_while_the_first_lives_and_no_longer(tmp_path):
    pid, worker = start_holder(tmp_path)
    try:
        with pytest.raises(CheckpointError, match=rf"one job at a time .* --save .*; process {pid} on .* is writing"):
            manager_of(tmp_path)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        save_all(tmp_path, [1])  # Though the worker has outlived its job.
    finally:
        os.kill(worker, signal.SIGKILL)


def test_loading_needs_no_lock_and_closing_gives_it_up(tmp_path):
    manager = manager_of(tmp_path)
    manager.save(1, state(1), {}, "")

    def read(rank, world_size):
        return manager_of(None, load=tmp_path).resume().meta["iteration"]

    def write(rank, world_size):
        save_all(tmp_path, [2])

    assert run_world(read, 1) == [1]
    manager.close()
    run_world(write, 1)
    assert run_world(read, 1) == [2]
