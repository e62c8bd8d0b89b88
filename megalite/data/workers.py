"""Threads that work ahead, and whose death is noticed by those who wait for them."""

import queue
import threading
from concurrent.futures import Future, wait
from typing import Any, Callable

from megalite.errors import DataError

_CHECK_SECONDS = 1.0
"""How often one who waits looks whether the threads still live."""


class Workers:
    """``num_threads`` daemon threads, which do what is submitted in its order and keep no process from ending.

    Unlike an executor of the standard library they do not leave a caller waiting for a thread that has ended: by an
    exit that something called within it, or because the interpreter was made to end it.
    """

    def __init__(self, num_threads: int, name: str):
        self._tasks: queue.SimpleQueue[tuple[Future, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future:
        """Have ``function(*args)`` called, unless the future is cancelled before."""
        future: Future = Future()
        self._tasks.put((future, lambda: function(*args)))
        return future

    def result(self, future: Future) -> Any:
        """What came of ``future``. Raises what the function raised, and :class:`DataError` if a thread has died."""
        while not wait([future], timeout=_CHECK_SECONDS).done:
            dead = [thread.name for thread in self._threads if not thread.is_alive()]
            if dead and not future.done():
                raise DataError(
                    f"the threads that read data must live until the run ends; {', '.join(dead)} died: look for what "
                    "ended it above, resume from the last checkpoint, or read without threads by --num-workers 0."
                )
        return future.result()

    def close(self) -> None:
        """Drop what has not begun, and wait for the threads to end."""
        while not self._tasks.empty():
            task = self._tasks.get()
            if task is not None:
                task[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)
            del future, function, task  # They would keep a batch alive while the thread waits.
