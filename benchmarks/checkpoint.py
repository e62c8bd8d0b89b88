"""How fast are checkpoints, beside torch.save, torch.distributed.checkpoint and a plain copy of a file of their size?

State: the tensors of a GPT with Adam's two moments, 500 MB in float32, in one process. All write to one directory, and
force what they write to disk (torch.save and the copy by an fsync afterwards; torch.distributed.checkpoint does it
itself). Before each reading, the files are dropped from the page cache. In every round all contenders run once, in
another order. "async" is the time for which a training would stop with asynchronous saving, the writing going on behind.

Prints median seconds of each, and megalite's ratio to the others within the rounds (lowest, median, highest).
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
from megalite.config import CheckpointConfig
from megalite.log import echo, progress
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
    path = str(directory / "megalite")
    config = CheckpointConfig(save=path, load=path, async_save=async_save)
    return CheckpointManager(config, Group.single("world"))


def save_megalite(directory: Path, state: State, _: int) -> float:
    shutil.rmtree(directory / "megalite", ignore_errors=True)
    return _save_and_close(manager(directory), state)


def save_async(directory: Path, state: State, _: int) -> float:
    shutil.rmtree(directory / "megalite", ignore_errors=True)
    return _save_and_close(manager(directory, async_save=True), state)


def _save_and_close(writer: CheckpointManager, state: State) -> float:
    os.sync()
    started = time.perf_counter()
    writer.save(1, pieces_of(state), {}, CONFIG_YAML)
    seconds = time.perf_counter() - started
    writer.close()
    return seconds


def save_torch(directory: Path, state: State, _: int) -> float:
    (directory / "state.pt").unlink(missing_ok=True)
    return _timed(lambda: (torch.save(state, directory / "state.pt"), _sync(directory / "state.pt")))


def save_dcp(directory: Path, state: State, _: int) -> float:
    shutil.rmtree(directory / "dcp", ignore_errors=True)
    return _timed(lambda: dcp.save(state, checkpoint_id=directory / "dcp", no_dist=True))


def save_copy(directory: Path, state: State, num_bytes: int) -> float:
    source, target = directory / "source", directory / "copy"
    if not source.exists():
        source.write_bytes(bytes(num_bytes))
        _sync(source)
    source.read_bytes()  # The copy then only has to write, as the others do.
    target.unlink(missing_ok=True)
    return _timed(lambda: (shutil.copyfile(source, target), _sync(target)))


def load_megalite(directory: Path, state: State) -> float:
    reader = manager(directory)
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
    "async": save_async,
    "torch.save": save_torch,
    "dcp": save_dcp,
    "copy": save_copy,
}
LOADS: dict[str, Callable] = {"megalite": load_megalite, "torch.load": load_torch, "dcp": load_dcp, "copy": load_copy}


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
            ratios = sorted(times["megalite"] / times[name] for times in rounds)
            line += f"   megalite / {name}: {ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f}"
        echo(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--directory", type=Path, help="where to write (default: the temporary directory)")
    options = parser.parse_args()
    state = make_state(options.megabytes * 1_000_000)
    num_bytes = sum(tensor.nbytes for tensor in state.values())
    saves, loads = [], []
    with tempfile.TemporaryDirectory(dir=options.directory) as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dcp mentions that there is no process group.
        for number in range(options.rounds + 1):  # The first round warms up.
            progress(f"round {number} of {options.rounds}")
            saves.append({})
            for contender in _shuffled(SAVES, number):
                saves[-1][contender] = SAVES[contender](Path(name), state, num_bytes)
            loads.append({})
            for contender in _shuffled(LOADS, number):
                _drop_from_cache(Path(name))
                loads[-1][contender] = LOADS[contender](Path(name), state)
    echo(f"{num_bytes / 1e6:.0f} MB in {len(state)} tensors, {options.rounds} rounds")
    _report("save", saves[1:])
    _report("load", loads[1:])


if __name__ == "__main__":
    main()
