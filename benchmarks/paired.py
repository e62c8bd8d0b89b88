"""Paired timing: every contestant lives in a process of its own and takes one turn per round, in shuffled order.

Machines are noisy, and noise hits all contestants of a round alike: so ratios are taken within rounds, and their
median is reported. Memory is the peak of each contestant's own process.
"""

import multiprocessing
import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Callable, Mapping

import torch
import torch.distributed as dist

from megalite.train.memory import peak_rss_bytes

Contestant = Callable[[int, int], Callable[[], Any]]
"""Called in its own process with (rank, world size): prepares, and returns the function that is timed; picklable."""

_PAUSE = 0.02
"""Seconds before each turn: the threads of the last contestant wait for more work for some milliseconds, busily."""


@dataclass
class Result:
    """Seconds of each timed turn, and the peak resident memory of the largest rank, of one contestant."""

    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    last_value: Any = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class _World:
    """The processes of one contestant, joined by gloo where there are several."""

    def __init__(self, contestant: Contestant, world_size: int, threads: int, untimed: int):
        context = multiprocessing.get_context("spawn")
        self._directory = tempfile.TemporaryDirectory(prefix="race-")
        self._pipes: list[Connection] = []
        self._workers = []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            place = (rank, world_size, f"{self._directory.name}/store")
            args = (contestant, place, threads, untimed, theirs)
            worker = context.Process(target=_serve, args=args, daemon=True)
            worker.start()
            theirs.close()
            self._pipes.append(ours)
            self._workers.append(worker)
        self._receive()

    def turn(self) -> tuple[float, Any]:
        """Seconds until the last rank is done, and what rank 0 returned."""
        time.sleep(_PAUSE)
        for pipe in self._pipes:
            pipe.send("go")
        outcomes = self._receive()
        return max(seconds for seconds, _ in outcomes), outcomes[0][1]

    def stop(self) -> int:
        """End the processes; returns the peak memory of the largest."""
        for pipe in self._pipes:
            pipe.send("stop")
        peak = max(self._receive())
        for worker in self._workers:
            worker.join()
        self._directory.cleanup()
        return peak

    def _receive(self) -> list:
        return [pipe.recv() for pipe in self._pipes]


def _serve(
    contestant: Contestant, place: tuple[int, int, str], threads: int, untimed: int, pipe: Connection
) -> None:
    rank, world_size, store = place
    torch.set_num_threads(threads)
    if world_size > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", store=dist.FileStore(store, world_size), rank=rank, world_size=world_size)
    turn = contestant(rank, world_size)
    pipe.send("ready")
    while pipe.recv() == "go":
        for _ in range(untimed):
            turn()
        started = time.perf_counter()
        value = turn()
        pipe.send((time.perf_counter() - started, value))
    pipe.send(peak_rss_bytes())


def race(
    contestants: Mapping[str, Contestant],
    rounds: int,
    warmup: int = 2,
    threads: int = 2,
    world_size: int = 1,
    untimed: int = 0,
) -> dict[str, Result]:
    """Time every contestant for ``rounds`` turns after ``warmup`` untimed ones; one contestant runs at a time.

    What takes few milliseconds would be timed with the waking of its threads: each turn begins with ``untimed`` calls.
    """
    worlds = {name: _World(contestant, world_size, threads, untimed) for name, contestant in contestants.items()}
    results = {name: Result() for name in contestants}
    order = list(contestants)
    for number in range(warmup + rounds):
        random.Random(number).shuffle(order)
        for name in order:
            seconds, results[name].last_value = worlds[name].turn()
            if number >= warmup:
                results[name].seconds.append(seconds)
    for name, world in worlds.items():
        results[name].peak_bytes = world.stop()
    return results


def ratio(results: Mapping[str, Result], name: str, anchor: str) -> tuple[float, float, float]:
    """(lower quartile, median, upper quartile) of the anchor's time over ``name``'s, by round: above 1 is faster."""
    ratios = [a / b for a, b in zip(results[anchor].seconds, results[name].seconds)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return low, middle, high


def table(results: Mapping[str, Result], anchor: str, unit: str, amount: float) -> str:
    """Rows of rate (``amount`` of ``unit`` a turn), ratio to the anchor with its quartiles, and peak memory."""
    lines = [f"| contestant | {unit}/s | speed against {anchor} (quartiles) | peak memory (MiB) |", "|---|---|---|---|"]
    for name, result in results.items():
        low, middle, high = ratio(results, name, anchor)
        rate = amount / result.median
        lines.append(
            f"| {name} | {rate:,.0f} | {middle:.2f} ({low:.2f}-{high:.2f}) | {result.peak_bytes / 2**20:,.0f} |"
        )
    return "\n".join(lines)
