"""Blocks through worker processes, results in the order of the blocks.

Why processes and not the threads that the `tokenizers` library itself offers: measured by ``benchmarks/preprocess.py``
on two cores and 32 MB of Python source, two processes of one thread each encode MEASURED of what the library's own
threads do on the same batches, since those share one word cache and the allocator, and Python's part of the work
(JSON, lists of ids) then runs beside the encoding instead of between two batches. A worker is started fresh
("spawn"), never forked: a fork of a process whose Rust thread pool has run would wait for ever at its first batch.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Iterable, Iterator

from megalite.data.preprocess.encode import EncodedBlock, EncodeSettings, encode_block
from megalite.data.preprocess.inputs import Block
from megalite.errors import DistributedError

BLOCKS_PER_WORKER = 3  # in flight: one at work, one waiting for the worker, one waiting for its turn to be written


def encode_in_order(settings: EncodeSettings, blocks: Iterable[Block], num_workers: int) -> Iterator[EncodedBlock]:
    """Encode ``blocks`` in ``num_workers`` processes; memory does not grow with their number.

    An error of a worker is raised when the turn of its block comes, so the first fault of the corpus is reported
    whatever the number of workers. Close the generator to stop early.
    """
    context = multiprocessing.get_context("spawn")
    pending: deque[Future[EncodedBlock]] = deque()
    pool = ProcessPoolExecutor(num_workers, context, initializer=_start_worker)
    try:
        for block in blocks:
            pending.append(pool.submit(encode_block, settings, block))
            if len(pending) >= BLOCKS_PER_WORKER * num_workers:
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
