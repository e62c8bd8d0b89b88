import ctypes
import threading
import time

import pytest

from megalite.data.loader import BatchLoader
from megalite.data.workers import Workers
from megalite.errors import DataError
from tests.data.test_loader import CPU, Counting


@pytest.fixture
def workers():
    made = Workers(2, "test")
    yield made
    made.close()


def named(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def kill(thread):
    """End a thread from outside, as soon as it runs Python code again."""
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)) == 1


def test_results_and_errors_come_back(workers):
    futures = [workers.submit(divmod, 7, divisor) for divisor in (2, 0)]
    assert workers.result(futures[0]) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        workers.result(futures[1])


def test_a_slow_task_is_waited_for(workers, monkeypatch):
    monkeypatch.setattr("megalite.data.workers._CHECK_SECONDS", 0.01)
    assert workers.result(workers.submit(lambda: time.sleep(0.1) or "done")) == "done"


def test_an_error_that_is_called_a_timeout_is_not_taken_for_one(workers):
    def fail():
        raise TimeoutError("of the storage")

    with pytest.raises(TimeoutError, match="of the storage"):
        workers.result(workers.submit(fail))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("busy", [True, False], ids=["at work", "waiting for work"])
def test_a_thread_that_is_killed_is_noticed(monkeypatch, busy):
    monkeypatch.setattr("megalite.data.workers._CHECK_SECONDS", 0.05)
    loader = BatchLoader(Counting(seconds=0.3 if busy else 0.0), 64, ("tokens",), CPU, num_workers=1)
    if not busy:
        loader.load([], [range(0, 2)])
        loader.load([range(0, 2)])
    (thread,) = named("megalite-loader")
    if busy:
        loader.load([], [range(2, 4)])
        time.sleep(0.1)
    kill(thread)
    loader.load([], [range(2, 4)] if not busy else [])
    with pytest.raises(DataError, match="threads that read data must live until the run ends; megalite-loader-0 died"):
        loader.load([], [range(4, 6)])
        loader.load([range(4, 6)])
    loader.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exit_within_a_thread_ends_it_and_is_noticed(workers, monkeypatch):
    monkeypatch.setattr("megalite.data.workers._CHECK_SECONDS", 0.05)

    def leave():
        raise SystemExit(3)

    with pytest.raises(DataError, match="died: look for what ended it above, .* --num-workers 0"):
        workers.result(workers.submit(leave))


def test_close_drops_what_has_not_begun():
    workers = Workers(1, "closing")
    futures = [workers.submit(time.sleep, 0.05) for _ in range(20)]
    workers.close()
    assert sum(future.cancelled() for future in futures) > 15 and named("closing") == []
