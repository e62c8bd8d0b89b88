"""How fast are checkpoints, beside torch.save, torch.distributed.checkpoint and a plain copy of a file of their size?

State: the tensors of a GPT with Adam's two moments, 500 MB in float32, in one process. All write to one directory, and
force what they write to disk (torch.save and the copy by an fsync afterwards; torch.distributed.checkpoint does it
itself). In every round all contenders run once, in another order; first come the rounds of saving, then those of
loading, each reading after the files were dropped from the page cache. "stall" is the time for which training stops
with --async-save, the writing going on behind; its first save, which also claims the host memory that later ones use
again, is in the round that warms up.

Prints median seconds of each, and ratios within the rounds (lowest, median, highest): megalite's to the others, and
the stall's to megalite's synchronous save.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Callable

import torch
import torch.distributed.checkpoint as dcp

from megalite.checkpoint.manager import CheckpointManager
from megalite.checkpoint.piece import Piece
from megalite.checkpoint.store import crc32_of
from megalite.config import CheckpointConfig
from megalite.log import echo, progress, run_main
from megalite.parallel.group import Group
from megalite.state import Box

State = dict[str, torch.Tensor]
CONFIG_YAML = "seed: 1\n"


def make_state(num_bytes: int) -> State:
    """Parameters of as many layers of 768 features as fit, each with two moments."""
    shapes = {"qkv": (12, 3, 64, 768), "out": (768, 768), "up": (3072, 768), "down": (768, 3072), "norm": (768,)}
    per_layer = sum(4 * 3 * torch.Size(shape).numel() for shape in shapes.values())
    names = [f"layers.{i}.{name}" for i in range(num_bytes // per_layer) for name in shapes]
    return {
        f"{slot}{name}": torch.randn(shapes[name.split(".")[-1]])
        for name in names
        for slot in ("", "optim.exp_avg.", "optim.exp_avg_sq.")
    }


def pieces_of(state: State) -> list[Piece]:
    return [Piece(name, tuple(t.shape), Box.whole(t.shape), t) for name, t in state.items()]


def manager(directory: Path, async_save: bool = False) -> CheckpointManager:
    path = str(directory)
    config = CheckpointConfig(save=path, load=path, async_save=async_save)
    return CheckpointManager(config, Group.single("world"))


def save_megalite(directory: Path, state: State) -> float:
    shutil.rmtree(directory / "megalite", ignore_errors=True)
    writer = manager(directory / "megalite")
    seconds = _timed(lambda: writer.save(1, pieces_of(state), {}, CONFIG_YAML))
    writer.close()
    return seconds


class AsynchronousSaves:
    """As a training makes them, by one manager."""

    def __init__(self, directory: Path):
        self._directory = directory / "async"
        self._writer = manager(self._directory, async_save=True)

    def __call__(self, directory: Path, state: State) -> float:
        shutil.rmtree(self._directory / "iter_0000001", ignore_errors=True)
        seconds = _timed(lambda: self._writer.save(1, pieces_of(state), {}, CONFIG_YAML))
        self._writer.wait()
        return seconds


def save_torch(directory: Path, state: State) -> float:
    (directory / "state.pt").unlink(missing_ok=True)
    return _timed(lambda: (torch.save(state, directory / "state.pt"), _sync(directory / "state.pt")))


def save_dcp(directory: Path, state: State) -> float:
    shutil.rmtree(directory / "dcp", ignore_errors=True)
    return _timed(lambda: dcp.save(state, checkpoint_id=directory / "dcp", no_dist=True))


def save_copy(directory: Path, state: State) -> float:
    source, target = directory / "source", directory / "copy"
    if not source.exists():
        torch.save(state, source)
        _sync(source)
    crc32_of(source)  # Reads it: the copy then only has to write, as the others do.
    target.unlink(missing_ok=True)
    return _timed(lambda: (shutil.copyfile(source, target), _sync(target)))


def load_megalite(directory: Path, state: State) -> float:
    reader = manager(directory / "megalite")
    seconds = _timed(lambda: reader.load(reader.resume(), pieces_of(state)))
    reader.close()
    return seconds


def load_torch(directory: Path, state: State) -> float:
    def load() -> None:
        for name, tensor in torch.load(directory / "state.pt", weights_only=True).items():
            state[name].copy_(tensor)

    return _timed(load)


def load_dcp(directory: Path, state: State) -> float:
    return _timed(lambda: dcp.load(state, checkpoint_id=directory / "dcp", no_dist=True))


def load_copy(directory: Path, state: State) -> float:
    target = directory / "copied again"
    target.unlink(missing_ok=True)
    return _timed(lambda: (shutil.copyfile(directory / "copy", target), _sync(target)))


SAVES: dict[str, Callable] = {
    "megalite": save_megalite,
    "torch.save": save_torch,
    "dcp": save_dcp,
    "copy": save_copy,
}
LOADS: dict[str, Callable] = {"megalite": load_megalite, "torch.load": load_torch, "dcp": load_dcp, "copy": load_copy}


def _chosen(contenders: dict[str, Callable], names: list[str] | None) -> dict[str, Callable]:
    return {name: save for name, save in contenders.items() if names is None or name in ("megalite", *names)}


def _shuffled(contenders: dict[str, Callable], number: int) -> list[str]:
    return random.Random(number).sample(sorted(contenders), len(contenders))


def _timed(action: Callable[[], object]) -> float:
    os.sync()  # Nobody pays for the leftovers of another.
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _drop_from_cache(directory: Path) -> None:
    for path in filter(Path.is_file, directory.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _report(title: str, rounds: list[dict[str, float]]) -> None:
    echo(title)
    for name in sorted(rounds[0], key="megalite".__ne__):
        line = f"  {name:<12}{statistics.median(times[name] for times in rounds):6.2f} s"
        if name != "megalite":
            above, below = ("stall", "megalite") if name == "stall" else ("megalite", name)
            ratios = sorted(times[above] / times[below] for times in rounds)
            line += f"   {above} / {below}: {ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f}"
        echo(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="besides megalite, these contenders alone")
    parser.add_argument("--directory", type=Path, help="where to write (default: the temporary directory)")
    options = parser.parse_args()
    state = make_state(options.megabytes * 1_000_000)
    num_bytes = sum(tensor.nbytes for tensor in state.values())
    saves, loads = [], []
    with tempfile.TemporaryDirectory(dir=options.directory) as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dcp mentions that there is no process group.
        path = Path(directory)
        savers = _chosen({**SAVES, "stall": AsynchronousSaves(path)}, options.only)
        loaders = _chosen(LOADS, options.only)
        # All saves first: where a virtual machine gives the room of dropped pages back to its host, whoever writes next
        # pays for getting it again.
        rounds = range(options.rounds + 1)  # The first one warms up.
        for number in rounds:
            progress(f"saving, round {number} of {options.rounds}")
            saves.append({name: savers[name](path, state) for name in _shuffled(savers, number)})
        for number in rounds:
            progress(f"loading, round {number} of {options.rounds}")
            loads.append({})
            for name in _shuffled(loaders, number):
                _drop_from_cache(path)
                loads[-1][name] = loaders[name](path, state)
    echo(f"{num_bytes / 1e6:.0f} MB in {len(state)} tensors, {options.rounds} rounds")
    if "stall" in saves[0]:
        echo(f"first stall {saves[0]['stall']:.2f} s")
    _report("save", saves[1:])
    _report("load", loads[1:])


if __name__ == "__main__":
    run_main(main)
