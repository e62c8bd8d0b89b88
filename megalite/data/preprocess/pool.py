"""Chunks through worker processes, results in the order of the chunks.

Why processes of one thread each, and not the threads that the `tokenizers` library offers: on two cores both encode at
the same rate, nearly that of the bare library (benchmarks/preprocess.py), but Python's part of the work, JSON and lists
of ids, takes about 6 % of the time and holds the interpreter lock, so the threads of one process would stop scaling at
some sixteen cores. With gigatoken, Python's part is more than half.

Workers are started fresh ("spawn"), never forked: in the fork of a process whose Rust threads have run, the first batch
would wait for ever.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Iterable, Iterator

from megalite.data.preprocess.chunks import Chunk
from megalite.data.preprocess.encode import EncodedChunk, EncodeSettings, encode_chunk
from megalite.errors import DistributedError

CHUNKS_PER_WORKER = 3  # in flight: one at work, one waiting for the worker, one waiting for its turn to be written


def encode_in_order(settings: EncodeSettings, chunks: Iterable[Chunk], num_workers: int) -> Iterator[EncodedChunk]:
    """Encode ``chunks`` in ``num_workers`` processes; memory does not grow with their number.

    An error of a worker is raised when the turn of its chunk comes, so the first fault of the corpus is reported
    whatever the number of workers. Close the generator to stop early.
    """
    context = multiprocessing.get_context("spawn")
    pending: deque[Future[EncodedChunk]] = deque()
    pool = ProcessPoolExecutor(num_workers, context, initializer=_start_worker)
    try:
        for chunk in chunks:
            pending.append(pool.submit(encode_chunk, settings, chunk))
            if len(pending) >= CHUNKS_PER_WORKER * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise DistributedError(
            "every worker process must live until the end; one was ended from outside, perhaps because memory ran out: "
            f"use fewer --workers (now {num_workers})."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread a process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A parent that was killed can end nobody, and the queue between us never reports its end."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker process has a parent"
    parent.join()
    os._exit(1)
