"""Paired timing: every contestant lives in a process of its own and takes one turn per round, in shuffled order.

Machines are noisy, and noise hits all contestants of a round alike: so ratios are taken within rounds, and their
median is reported. Memory is the peak of each contestant's own process.
"""

import multiprocessing
import random
import statistics
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Callable, Mapping

from megalite.train.memory import peak_rss_bytes

Contestant = Callable[[], Callable[[], Any]]
"""Called in its own process: prepares, and returns the function that is timed. Must be picklable."""


@dataclass
class Result:
    """Seconds of each timed turn, and the peak resident memory, of one contestant."""

    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    last_value: Any = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def _serve(contestant: Contestant, threads: int, pipe: Connection) -> None:
    import torch

    torch.set_num_threads(threads)
    turn = contestant()
    pipe.send("ready")
    while pipe.recv() == "go":
        started = time.perf_counter()
        value = turn()
        pipe.send((time.perf_counter() - started, value))
    pipe.send(peak_rss_bytes())


def race(contestants: Mapping[str, Contestant], rounds: int, warmup: int = 2, threads: int = 2) -> dict[str, Result]:
    """Time every contestant for ``rounds`` turns after ``warmup`` untimed ones; one runs at a time."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    workers = []
    for name, contestant in contestants.items():
        ours, theirs = context.Pipe()
        worker = context.Process(target=_serve, args=(contestant, threads, theirs), daemon=True)
        worker.start()
        theirs.close()
        pipes[name] = ours
        workers.append(worker)
        ours.recv()
    results = {name: Result() for name in contestants}
    order = list(contestants)
    for number in range(warmup + rounds):
        random.Random(number).shuffle(order)
        for name in order:
            pipes[name].send("go")
            seconds, results[name].last_value = pipes[name].recv()
            if number >= warmup:
                results[name].seconds.append(seconds)
    for name, pipe in pipes.items():
        pipe.send("stop")
        results[name].peak_bytes = pipe.recv()
    for worker in workers:
        worker.join()
    return results


def ratio(results: Mapping[str, Result], name: str, anchor: str) -> tuple[float, float, float]:
    """(lower quartile, median, upper quartile) of the anchor's time over ``name``'s, round by round: above 1 is faster."""
    ratios = [a / b for a, b in zip(results[anchor].seconds, results[name].seconds)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return low, middle, high


def table(results: Mapping[str, Result], anchor: str, unit: str, amount: float) -> str:
    """Rows of rate (``amount`` of ``unit`` a turn), ratio to the anchor with its quartiles, and peak memory."""
    lines = [f"| contestant | {unit}/s | speed against {anchor} (quartiles) | peak memory (MiB) |", "|---|---|---|---|"]
    for name, result in results.items():
        low, middle, high = ratio(results, name, anchor)
        rate = amount / result.median
        lines.append(f"| {name} | {rate:,.0f} | {middle:.2f} ({low:.2f}-{high:.2f}) | {result.peak_bytes / 2**20:,.0f} |")
    return "\n".join(lines)
