"""An in-process transport: the executor of every pipeline rank runs in a thread of one process.

Most pipeline logic can thus be tested without process groups, and with messages that really wait for each other.
"""

import queue
import threading
from typing import Callable

from megalite.parallel.p2p import Channel, Tensors, TensorSpec


class _Letter:
    def __init__(self, box: queue.Queue, specs: dict[str, TensorSpec]):
        self._box, self._specs = box, specs

    def wait(self) -> Tensors:
        tensors = self._box.get(timeout=30)
        got = {name: TensorSpec(tuple(t.shape), t.dtype) for name, t in tensors.items()}
        assert got == self._specs, f"received {got}, declared {self._specs}"
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}


class Post:
    """The mailboxes of all channels; each rank's :class:`Mailbox` writes to and reads from them."""

    def __init__(self) -> None:
        self._boxes: dict[Channel, queue.Queue] = {}
        self._lock = threading.Lock()

    def box(self, channel: Channel) -> queue.Queue:
        with self._lock:
            return self._boxes.setdefault(channel, queue.Queue())


class Mailbox:
    """Transport of one rank."""

    def __init__(self, post: Post):
        self._post = post

    def send(self, channel: Channel, tensors: Tensors) -> None:
        self._post.box(channel).put(tensors)

    def post(self, channel: Channel, specs: dict[str, TensorSpec]) -> _Letter:
        return _Letter(self._post.box(channel), specs)

    def flush(self) -> None:
        """Nothing is ever on its way."""


def run_ranks(fn: Callable[[int], object], size: int) -> list:
    """Call ``fn(rank)`` in a thread for each rank; return the results in order, or raise the first failure."""
    results: list = [None] * size
    failures: list[BaseException] = []

    def body(rank: int) -> None:
        try:
            results[rank] = fn(rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "ranks are still waiting for each other"
    return results
