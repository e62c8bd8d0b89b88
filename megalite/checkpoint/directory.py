"""The --save directory: names in it, and the few steps that change it, each of which leaves it whole if it is the last.

A checkpoint is written to ``.tmp-iter_0000010``, forced to disk and renamed to ``iter_0000010``; then the tracker file
names it. Where that name is taken, the former holder steps aside as ``.old-iter_0000010`` until the new one is there.
"""

import contextlib
import os
import re
import shutil
import zlib
from pathlib import Path

from megalite.checkpoint.shard import StoredFile

TRACKER = "latest_checkpointed_iteration.txt"
"""Holds the iteration to resume from, in decimal; same name and meaning as in Megatron-LM."""

_TEMPORARY = ".tmp-"
_REPLACED = ".old-"


def iteration_name(iteration: int) -> str:
    """Name of the directory of an iteration's checkpoint."""
    return f"iter_{iteration:07d}"


def list_iterations(save: Path) -> list[int]:
    """Iterations of the checkpoints in ``save``, complete or not, ascending."""
    pattern = re.compile(rf"(?:{re.escape(_REPLACED)})?iter_(\d{{7,}})")
    if not save.is_dir():
        return []
    return sorted({int(match[1]) for entry in save.iterdir() if (match := pattern.fullmatch(entry.name))})


def checkpoint_path(save: Path, iteration: int) -> Path:
    """The directory of an iteration's checkpoint, which need not exist."""
    path, replaced = save / iteration_name(iteration), save / (_REPLACED + iteration_name(iteration))
    return replaced if replaced.is_dir() and not path.is_dir() else path


def temporary_path(save: Path, iteration: int) -> Path:
    """Where the checkpoint of an iteration is written before it is published."""
    return save / (_TEMPORARY + iteration_name(iteration))


def begin(temporary: Path) -> None:
    """Clear what an interrupted save has left behind, and make the directory to write into."""
    save = temporary.parent
    for entry in save.glob(f"{_TEMPORARY}*"):
        _remove(entry)
    for entry in save.glob(f"{_REPLACED}*"):
        path = save / entry.name.removeprefix(_REPLACED)
        if path.exists():
            _remove(entry)
        else:
            entry.rename(path)
    temporary.mkdir()


def publish(temporary: Path) -> None:
    """Give a directory whose files are on disk its final name, and point the tracker to it."""
    save = temporary.parent
    path = save / temporary.name.removeprefix(_TEMPORARY)
    sync_directory(temporary)
    replaced = save / (_REPLACED + path.name)
    if path.exists():
        path.rename(replaced)
    temporary.rename(path)
    sync_directory(save)
    tracker = save / f"{_TEMPORARY}{TRACKER}"
    write_file(tracker, f"{int(path.name.removeprefix('iter_'))}\n")
    tracker.replace(save / TRACKER)
    sync_directory(save)
    discard(replaced)


def discard(path: Path) -> None:
    """Drop an unpublished or replaced checkpoint; what cannot be removed now, the next save removes."""
    shutil.rmtree(path, ignore_errors=True)


def delete(save: Path, iteration: int) -> None:
    """Delete a checkpoint: it disappears at once, its bytes then follow."""
    path = save / iteration_name(iteration)
    doomed = save / f"{_TEMPORARY}deleted-{path.name}"
    path.rename(doomed)
    _remove(doomed)


def write_file(path: Path, text: str) -> StoredFile:
    """Write a text file and force it to disk."""
    data = text.encode("utf-8")
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return StoredFile(len(data), zlib.crc32(data))


def sync_directory(path: Path) -> None:
    """Force the names in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
