"""Chunks through worker processes, results in the order of the chunks.

Why processes of one thread each, and not the threads that the `tokenizers` library offers: on two cores both encode at
the same rate, nearly that of the bare library (benchmarks/preprocess.py), but Python's part of the work, JSON and lists
of ids, takes about 6 % of the time and holds the interpreter lock, so the threads of one process would stop scaling at
some sixteen cores. With gigatoken, Python's part is more than half.

Why not concurrent.futures: its workers send results through one pipe of 64 kB, one after another, and wait meanwhile,
which with gigatoken costs a fifth of the rate. Here each worker has a pipe of its own, large enough for a result, and a
thread of the parent that empties it; arrays go through it as they lie in memory
(:mod:`megalite.data.preprocess.arrays`).

Results are awaited in a SimpleQueue each, not a Future: an interrupt that arrives while the main thread takes a
Future's lock can leave it taken, and the thread that is to set the result would wait for ever.

Workers are started fresh ("spawn"), never forked: in the fork of a process whose Rust threads have run, the first batch
would wait for ever.
"""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
from collections import deque
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Iterable, Iterator

from megalite.data.preprocess.arrays import receive, send
from megalite.data.preprocess.chunks import Chunk
from megalite.data.preprocess.encode import EncodedChunk, EncodeSettings, encode_chunk
from megalite.errors import DistributedError
from megalite.native import native

CHUNKS_PER_WORKER = 3  # in flight: one at work, one waiting for the worker, one waiting for its turn to be written
_PIPE_BYTES = 1 << 20  # the most that Linux gives everybody

Slot = SimpleQueue["EncodedChunk | BaseException"]
"""Receives one thing: what became of a chunk."""


class Workers:
    """``num_workers`` processes, which start at once and encode when they are given chunks. Use it as a context
    manager, which ends them.
    """

    def __init__(self, num_workers: int):
        self._workers = [_Worker() for _ in range(num_workers)]

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: Any) -> None:
        for worker in self._workers:
            worker.stop()

    def encode(self, settings: EncodeSettings, chunks: Iterable[Chunk]) -> Iterator[EncodedChunk]:
        """Encode ``chunks``, results in their order; memory does not grow with their number.

        An error of a worker is raised when the turn of its chunk comes, so the first fault of the corpus is reported
        whatever the number of workers. Raises DistributedError when a process is ended from outside.
        """
        pending: deque[Slot] = deque()
        try:
            for chunk in chunks:
                pending.append(min(self._workers, key=_Worker.load).submit(settings, chunk))
                if len(pending) >= CHUNKS_PER_WORKER * len(self._workers):
                    yield _result(pending.popleft())
            while pending:
                yield _result(pending.popleft())
        except (EOFError, BrokenPipeError):
            raise DistributedError(
                "every worker process must live until the end; one was ended from outside, perhaps because memory ran "
                f"out: use fewer --workers (now {len(self._workers)})."
            ) from None


def _result(slot: Slot) -> EncodedChunk:
    result = slot.get()
    if isinstance(result, BaseException):
        raise result
    return result


class _Worker:
    """A process that encodes chunks, and a thread of ours that receives what it sends."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        tasks, self._tasks = context.Pipe(duplex=False)
        self._results, results = context.Pipe(duplex=False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # the user's share of pipe memory may be used up; a small pipe is slower
                fcntl.fcntl(self._results.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._process = context.Process(target=_work, args=(tasks, results), daemon=True)
        self._process.start()
        tasks.close()
        results.close()
        self._waiting: deque[Slot] = deque()
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def load(self) -> int:
        """Chunks that are not done."""
        return len(self._waiting)

    def submit(self, settings: EncodeSettings, chunk: Chunk) -> Slot:
        """Raises BrokenPipeError when the process is gone."""
        slot: Slot = SimpleQueue()
        self._waiting.append(slot)
        self._tasks.send((settings, chunk))
        return slot

    def stop(self) -> None:
        """End the process, in the middle of its work if it has any."""
        self._process.terminate()
        self._process.join()
        self._receiver.join()
        self._tasks.close()
        self._results.close()
        self._process.close()

    def _receive(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                result = receive(self._results)
                self._waiting.popleft().put(result)
        while self._waiting:
            self._waiting.popleft().put(EOFError())


def _work(tasks: Connection, results: Connection) -> None:
    """Body of a worker process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread a process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    native()  # its loading keeps freed memory in the process: each chunk needs the same amounts again
    while True:
        settings, chunk = tasks.recv()
        try:
            result = encode_chunk(settings, chunk)
        except Exception as error:  # the parent raises it when the chunk's turn comes
            result = error
        send(results, result)


def _leave_with_parent() -> None:
    """A parent that was killed can end nobody; without it our work is in vain."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker process has a parent"
    parent.join()
    os._exit(1)
