"""``tools/checkpoint_inspect.py``: lists what a checkpoint holds, or where two differ. Reads tensor after tensor."""

import argparse
import json
import math
from pathlib import Path
from typing import Sequence

import torch

from megalite.checkpoint.locate import find_checkpoint
from megalite.checkpoint.piece import STATE_PREFIX
from megalite.checkpoint.store import Store
from megalite.errors import CheckpointError
from megalite.log import echo, logger


def main(arguments: Sequence[str] | None = None) -> int:
    """Body of the tool; ``arguments`` default to the command line. Returns 1 if two checkpoints differ."""
    options = _parser().parse_args(arguments)
    store = _open(options.directory, options.ckpt_step)
    if options.verify:
        _verify(store)
    if options.diff is not None:
        return _report_differences(store, _open(options.diff, None))
    echo(_heading(store))
    echo(_table(store, options.norms))
    if options.config:
        echo(f"\nconfiguration\n{store.config_yaml().rstrip()}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="List what a checkpoint holds, or compare two.")
    parser.add_argument("directory", type=Path, help="a --save directory, for its newest checkpoint, or one checkpoint")
    parser.add_argument("--ckpt-step", type=int, help="the checkpoint of this step instead of the newest")
    parser.add_argument("--norms", action="store_true", help="also read every tensor and show its norm")
    parser.add_argument("--config", action="store_true", help="also show the configuration of the run")
    parser.add_argument("--verify", action="store_true", help="first compare all files with their checksums")
    diff_help = "show where the checkpoint OTHER differs; exit status 1 if it does"
    parser.add_argument("--diff", type=Path, metavar="OTHER", help=diff_help)
    return parser


def _open(directory: Path, step: int | None) -> Store:
    found = find_checkpoint(directory, step)
    for warning in found.warnings:
        logger.warning(warning)
    return found.store


def _verify(store: Store) -> None:
    if corrupt := store.corrupt_files(store.files):
        raise CheckpointError(f"{store.directory} is damaged: the checksums of {', '.join(corrupt)} differ.")
    if not store.has_checksums:
        raise CheckpointError(
            f"{store.directory} must have been saved with checksums to be verified; it has none of its shards."
        )
    echo(f"{len(store.files)} files hold what was written")


def _heading(store: Store) -> str:
    apart = ("iteration", "data_stream")
    counters = [f"{name} {json.dumps(value)}" for name, value in store.meta.items() if name not in apart]
    stream = store.meta.get("data_stream", {"corpora": [], "left": []})
    for corpus in stream["corpora"] + stream["left"]:
        counters.append(f"consumed {corpus['consumed']} samples of {corpus['name']}")
    shards = sum(name.endswith(".safetensors") for name in store.files)
    lines = [f"{store.directory}: iteration {store.meta['iteration']}, {shards} shards", *counters, ""]
    return "\n".join(lines)


def _table(store: Store, norms: bool) -> str:
    rows = [("tensor", "dtype", "shape", "parts", *(["norm"] if norms else []))]
    sizes = {"parameters": 0, "optimizer state": 0}
    for name in store.names():
        shape = store.shape(name)
        sizes["optimizer state" if name.startswith(STATE_PREFIX) else "parameters"] += math.prod(shape)
        norm = [f"{store.read(name).double().norm().item():.6g}"] if norms else []
        extent = " x ".join(map(str, shape)) or "scalar"
        rows.append((name, store.dtype(name), extent, str(len(store.boxes(name))), *norm))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *(f"{what}: {size:,} elements" for what, size in sizes.items())])


def _report_differences(store: Store, other: Store) -> int:
    names, other_names = set(store.names()), set(other.names())
    lines = [f"only in {store.directory}: {name}" for name in sorted(names - other_names)]
    lines += [f"only in {other.directory}: {name}" for name in sorted(other_names - names)]
    common = sorted(names & other_names)
    lines += [f"{name}: {difference}" for name in common if (difference := _difference(store, other, name))]
    for line in lines:
        echo(line)
    if not lines:
        echo(f"{len(common)} tensors are equal, bit for bit")
    return 1 if lines else 0


def _difference(store: Store, other: Store, name: str) -> str | None:
    """How a tensor differs; None if every bit is the same."""
    kinds = [(one.dtype(name), one.shape(name)) for one in (store, other)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} and {kinds[1]}"
    first, second = store.read(name), other.read(name)
    if torch.equal(_bits(first), _bits(second)):
        return None
    first, second = first.double(), second.double()
    change = first - second
    norms = f"norms {first.norm():.6g}, {second.norm():.6g}, of the difference {change.norm():.3g}"
    return f"largest difference {change.abs().max():.3g}; {norms}"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
