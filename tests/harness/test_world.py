import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.harness import WorkerFailed, run_world


def test_results_come_back_in_rank_order():
    def total(rank, world_size):
        value = torch.tensor([float(rank)])
        dist.all_reduce(value)
        return rank, value.item()

    assert run_world(total, 3) == [(0, 3.0), (1, 3.0), (2, 3.0)]


def test_the_failing_rank_is_named_and_the_others_end():
    def fail(rank, world_size):
        if rank == 1:
            raise ValueError("broken on purpose")
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(WorkerFailed, match=r"rank 1 failed(.|\n)*broken on purpose"):
        run_world(fail, 3)
    assert time.monotonic() - started < 20


def test_a_world_that_hangs_or_dies_is_reported():
    with pytest.raises(WorkerFailed, match=r"ranks \[0, 1\] did not finish within 1 s"):
        run_world(lambda rank, world_size: time.sleep(60), 2, timeout=1)
    with pytest.raises(WorkerFailed, match="rank 0 failed:(.|\n)*pickle"):
        run_world(lambda rank, world_size: lambda: None, 1)
    with pytest.raises(WorkerFailed, match="rank 0 died without a word"):
        run_world(lambda rank, world_size: os._exit(3), 1)
