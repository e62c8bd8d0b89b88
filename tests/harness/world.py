"""run_world: a function on every rank of a forked gloo world, as one call.

Forking a process that has torch loaded takes 0.2 s for eight ranks where spawning takes 6 s. So has one that has all
of torch loaded: the first backward pass imports sympy, and the first recomputation Dynamo, which each rank of each
world would do for itself. Each worker uses one thread. A worker's exception ends the world at once and is raised with
that rank's traceback on top.
"""

import os
import pickle
import selectors
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from typing import Any, Callable

import torch
import torch._dynamo  # what torch itself imports late, sympy too
import torch.distributed as dist


class WorkerFailed(AssertionError):
    """A rank raised, died or did not finish in time."""


def run_world(fn: Callable[..., Any], world_size: int, *args: Any, timeout: float = 120.0) -> list[Any]:
    """Call ``fn(rank, world_size, *args)`` on every rank and return the results in rank order (they must pickle).

    Raises :class:`WorkerFailed` with the first failing rank's traceback, after ending the others.
    """
    with tempfile.TemporaryDirectory(prefix="world-") as directory:
        pipes = {}
        pids = []
        for rank in range(world_size):
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                _worker(fn, rank, world_size, args, os.path.join(directory, "store"), writer, timeout)
            os.close(writer)
            pipes[reader] = rank
            pids.append(pid)
        try:
            return _collect(pipes, timeout)
        finally:
            for pid in pids:
                _end(pid)


def _worker(fn: Callable, rank: int, world_size: int, args: tuple, store: str, writer: int, timeout: float) -> None:
    parent = os.getppid()
    try:
        torch.set_num_threads(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), GLOO_SOCKET_IFNAME="lo")
        if world_size > 1:
            dist.init_process_group(
                "gloo",
                store=dist.FileStore(store, world_size),
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=timeout),
            )
        outcome = pickle.dumps((True, fn(rank, world_size, *args)))
    except BaseException:
        outcome = pickle.dumps((False, traceback.format_exc()))
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(outcome)
        sys.stdout.flush()
        sys.stderr.flush()
        while os.getppid() == parent:  # which ends it: a rank that left would fail those that are connecting to it
            time.sleep(0.1)
    finally:
        os._exit(1)  # whatever happens, no second process may go on with the tests


def _collect(pipes: dict[int, int], timeout: float) -> list[Any]:
    results: list[Any] = [None] * len(pipes)
    buffers = {reader: bytearray() for reader in pipes}
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for reader in pipes:
            selector.register(reader, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                waiting = sorted(pipes[key.fd] for key in selector.get_map().values())
                raise WorkerFailed(f"ranks {waiting} did not finish within {timeout:.0f} s")
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 20)
                if chunk:
                    buffers[key.fd] += chunk
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                results[pipes[key.fd]] = _result(pipes[key.fd], buffers[key.fd])
    return results


def _result(rank: int, data: bytearray) -> Any:
    if not data:
        raise WorkerFailed(f"rank {rank} died without a word")
    passed, value = pickle.loads(bytes(data))
    if not passed:
        raise WorkerFailed(f"rank {rank} failed:\n{value}")
    return value


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    os.waitpid(pid, 0)
