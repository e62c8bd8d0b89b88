"""Finding the checkpoint to load. The tracker file decides; what does not fit it is told, never guessed around."""

import zlib
from dataclasses import dataclass
from pathlib import Path

from megalite.checkpoint.directory import TRACKER, checkpoint_path, list_iterations
from megalite.checkpoint.index import INDEX, describe
from megalite.checkpoint.store import Store, open_store
from megalite.errors import CheckpointError


@dataclass(frozen=True)
class Found:
    """A complete checkpoint, and what the user should know of how it was found."""

    store: Store
    warnings: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Tells whether two ranks have found the same checkpoint."""
        crc32 = zlib.crc32((self.store.directory / INDEX).read_bytes())
        return f"iteration {self.store.meta['iteration']} in {self.store.directory} (index {crc32:08x})"


def is_fresh(directory: Path) -> bool:
    """Whether a job never saved a checkpoint in ``directory``, which need not exist."""
    return not (directory / TRACKER).exists() and not list_iterations(directory)


def find_checkpoint(directory: Path, step: int | None = None) -> Found:
    """The checkpoint of iteration ``step``, or else the one that the tracker names.

    If that one is incomplete, or the tracker is missing or damaged, it is the newest complete one before it, with a
    warning. ``directory`` may also be a checkpoint itself. Raises :class:`CheckpointError` if there is none.
    """
    if not directory.is_dir():
        raise CheckpointError(f"{directory} must be a directory with checkpoints; it does not exist.")
    if (directory / INDEX).is_file():
        return _itself(directory, step)
    if step is not None:
        return _exactly(directory, step)
    iterations = list_iterations(directory)
    tracked, warnings = _read_tracker(directory)
    if tracked is not None:
        iterations = [*(i for i in iterations if i < tracked), tracked]
    for iteration in reversed(iterations):
        try:
            store = open_store(checkpoint_path(directory, iteration))
        except CheckpointError as error:
            warnings.append(f"skipped iteration {iteration}: {error}")
            continue
        if warnings:
            warnings.append(f"continuing from iteration {iteration} instead")
        return Found(store, tuple(warnings))
    found = warnings if iterations else [describe(directory)]
    raise CheckpointError(
        f"{directory} must contain a complete checkpoint: {'; '.join(found)}.{_offer(directory, iterations)}"
    )


def _itself(directory: Path, step: int | None) -> Found:
    store = open_store(directory)
    iteration = store.meta["iteration"]
    if step not in (None, iteration):
        raise CheckpointError(
            f"{directory} is the checkpoint of iteration {iteration}, but --ckpt-step is {step}: drop one."
        )
    return Found(store)


def _exactly(directory: Path, step: int) -> Found:
    try:
        return Found(open_store(checkpoint_path(directory, step)))
    except CheckpointError as error:
        raise CheckpointError(f"--ckpt-step {step} cannot be loaded: {error}{_offer(directory, [step])}") from None


def _read_tracker(directory: Path) -> tuple[int | None, list[str]]:
    """The iteration that the tracker names, or a warning why it names none."""
    path = directory / TRACKER
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return None, [f"{path} cannot be read ({error.strerror})"]
    if text.isascii() and text.isdigit():
        return int(text), []
    return None, [f"{path} must hold an iteration number; it holds {text[:40]!r}"]


def _offer(directory: Path, tried: list[int]) -> str:
    """The complete checkpoints besides those tried: the user may ask for one of them."""
    others = []
    for iteration in list_iterations(directory):
        try:
            open_store(checkpoint_path(directory, iteration))
        except CheckpointError:
            continue
        if iteration not in tried:
            others.append(str(iteration))
    return f" Complete ones: --ckpt-step {', '.join(others)}." if others else ""
