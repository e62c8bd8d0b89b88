import threading
import time

import numpy as np
import pytest
import torch

from megalite.data.loader import BatchLoader
from megalite.data.sampler import microbatches
from megalite.errors import DataError

CPU = torch.device("cpu")


class Counting:
    """Sample k holds the tokens (k, k + 1); reading is recorded with the thread that does it."""

    fingerprint = "counting"

    def __init__(self, length=64, failing=(), seconds=0.0):
        self.length, self.failing, self.seconds, self.read = length, failing, seconds, []

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index in self.failing:
            raise self.failing[index]
        time.sleep(self.seconds)
        self.read.append((index, threading.current_thread() is threading.main_thread()))
        return {"tokens": np.array([index, index + 1]), "loss_mask": np.ones(2, np.float32), "extra": np.zeros(1)}

    def padding(self):
        return {"tokens": np.zeros(2, np.int64), "loss_mask": np.zeros(2, np.float32), "extra": np.zeros(1)}


@pytest.fixture(params=[0, 1, 3])
def workers(request):
    return request.param


def make(dataset, workers=0, num_samples=64, fields=("tokens", "loss_mask")):
    return BatchLoader(dataset, num_samples, fields, CPU, workers)


def stream(workers, start, stop, dp=1, micro=2, batch=8):
    """Sample ids of every step from ``start`` to ``stop``, over all ranks in their order."""
    loaders = [make(Counting(), workers) for _ in range(dp)]
    steps = []
    for consumed in range(start, stop, batch):
        ahead = consumed + batch
        per_rank = [
            loader.load(
                microbatches(consumed, batch, micro, rank, dp),
                microbatches(ahead, batch, micro, rank, dp) if ahead < stop else (),
            )
            for rank, loader in enumerate(loaders)
        ]
        steps.append([int(k) for at_once in zip(*per_rank) for b in at_once for k in b["sample_ids"]])
        for batches in per_rank:
            assert all(b["tokens"][:, 0].equal(b["sample_ids"]) for b in batches)
    for loader in loaders:
        loader.close()
    return steps


def test_batches_hold_the_fields_asked_for(workers):
    loader = make(Counting(), workers)
    first, second = loader.load([range(3, 5), range(7, 9)])
    assert sorted(first) == ["loss_mask", "sample_ids", "tokens"]
    assert first["tokens"].tolist() == [[3, 4], [4, 5]] and second["sample_ids"].tolist() == [7, 8]
    assert first["sample_ids"].dtype == torch.int64 and first["loss_mask"].dtype == torch.float32
    loader.close()


def test_resuming_continues_the_stream(workers):
    """10 straight steps = 5 + 5 = 3 + 3 + 4, whoever reads and however the ranks are counted."""
    straight = stream(0, 0, 64)
    assert straight == [list(range(start, start + 8)) for start in range(0, 64, 8)]
    assert stream(workers, 0, 40) + stream(workers, 40, 64) == straight
    assert (
        stream(workers, 0, 24, dp=2) + stream(workers, 24, 48, dp=1, micro=8) + stream(workers, 48, 64, dp=4)
        == straight
    )


def test_workers_read_ahead_what_is_announced():
    dataset = Counting()
    loader = make(dataset, 2)
    loader.load([range(0, 2)], [range(2, 4), range(4, 6)])
    loader.load([range(2, 4), range(4, 6)])
    by_main = {index: main for index, main in dataset.read}
    assert [by_main[index] for index in range(6)] == [True, True, False, False, False, False]
    assert len(dataset.read) == 6
    loader.close()


def test_a_wrong_announcement_costs_only_time(workers):
    loader = make(Counting(), workers)
    loader.load([range(0, 2)], [range(2, 4)])
    assert loader.load([range(10, 12)])[0]["sample_ids"].tolist() == [10, 11]
    loader.close()


def test_samples_beyond_the_last_are_padding_without_loss(workers):
    loader = make(Counting(length=9), workers, num_samples=5)
    whole, mixed, padding = loader.load([range(2, 4), range(4, 6), range(6, 8)])
    assert (
        whole["loss_mask"].sum() == 4
        and mixed["loss_mask"].tolist() == [[1, 1], [0, 0]]
        and padding["loss_mask"].sum() == 0
    )
    assert mixed["sample_ids"].tolist() == [4, 5] and mixed["tokens"].tolist() == [[4, 5], [0, 0]]
    loader.close()


def test_nothing_is_read_where_no_field_is_needed():
    dataset = Counting()
    (batch,) = make(dataset, fields=("sample_ids",)).load([range(0, 2)])
    assert sorted(batch) == ["sample_ids"] and dataset.read == []


def test_an_error_of_a_worker_surfaces_with_its_cause(workers):
    broken = OSError(5, "Input/output error")
    loader = make(Counting(failing={5: broken}), workers)
    loader.load([range(0, 2)], [range(4, 6)])
    with pytest.raises(DataError, match=r"samples 4\.\.5 must be readable; \[Errno 5\] Input/output error") as error:
        loader.load([range(4, 6)])
    assert error.value.__cause__ is broken
    loader.close()


def test_a_bug_in_a_worker_keeps_its_type(workers):
    loader = make(Counting(failing={5: ZeroDivisionError("bug")}), workers)
    loader.load([range(0, 2)], [range(4, 6)])
    with pytest.raises(ZeroDivisionError):
        loader.load([range(4, 6)])
    loader.close()


def test_close_ends_the_threads_and_drops_what_is_ahead():
    before = threading.active_count()
    dataset = Counting(seconds=0.02)
    loader = make(dataset, 2)
    loader.load([range(0, 2)], [range(2 * k, 2 * k + 2) for k in range(1, 30)])
    loader.close()
    assert threading.active_count() == before and len(dataset.read) < 20


def test_more_samples_than_there_are_is_refused():
    with pytest.raises(DataError, match="must hold the 65 samples of the run; it holds 64"):
        make(Counting(), num_samples=65)
