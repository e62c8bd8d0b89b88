"""CheckpointManager: what the training loop knows of checkpoints: save, resume, load."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

from megalite.checkpoint.agree import attempt, by_rank, shared_error, together
from megalite.checkpoint.locate import find_checkpoint, is_fresh
from megalite.checkpoint.lock import DirectoryLock
from megalite.checkpoint.match import Strictness, readable_pieces
from megalite.checkpoint.piece import Piece
from megalite.checkpoint.policy import Retention
from megalite.checkpoint.snapshot import HostMemory
from megalite.checkpoint.store import Store
from megalite.checkpoint.writer import Content, Destination, write_checkpoint
from megalite.config import CheckpointConfig
from megalite.log import logger
from megalite.parallel.collectives import gather_objects
from megalite.parallel.group import Group


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is complete on disk."""

    iteration: int
    num_bytes: int
    """In the shards of all ranks."""
    seconds: float
    """Until it could be loaded, waiting for an earlier save included."""
    stalled_seconds: float
    """How long training waited for it."""


class CheckpointManager:
    """Saves to ``config.save`` and loads from ``config.load``. Every method is called by all ranks of ``group``.

    The --save directory is made and locked at once, so that an unsuitable one ends the job before it trains. With
    --async-save, writing goes on in a thread while training continues, and ``group`` must be used by nothing else.
    With --verify-integrity, checksums of the shards are written, and compared before a checkpoint is loaded. Errors
    are :class:`CheckpointError`, the same on every rank.
    """

    def __init__(self, config: CheckpointConfig, group: Group):
        self._config, self._group = config, group
        self._lock: DirectoryLock | None = None
        self._thread = ThreadPoolExecutor(1, "checkpoint") if config.async_save else None
        self._memory = HostMemory()
        self._pending: Future[Saved] | None = None
        self._waited = 0.0  # Seconds in wait() since the last save began.
        if config.save is not None:
            failure = f"--save {config.save} must be a directory that can be written to"
            self._lock = together(lambda: self._claim() if group.rank == 0 else None, group, failure)

    def _claim(self) -> DirectoryLock:
        save = Path(self._config.save)
        save.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(save)
        if not self._continues_its_own and not is_fresh(save):
            logger.warning(f"--save {save} holds checkpoints already: to continue that run, give --load {save} as well")
        return lock

    def save(
        self,
        iteration: int,
        pieces: Iterable[Piece],
        meta: dict[str, Any],
        config_yaml: str,
        accompany: Callable[[Store], None] | None = None,
    ) -> Saved | None:
        """Write a checkpoint of what all ranks' pieces hold now. One of the same iteration is replaced.

        ``meta`` is JSON data, equal on all ranks. With --async-save it returns None as soon as the pieces are copied;
        :meth:`wait` has the outcome. Before, it waits for an earlier save to end; a failure of that one is raised here.
        ``accompany`` is called by rank 0 with the whole checkpoint before it is published: it may write more beside it.
        """
        self.wait()
        started = time.monotonic() - self._waited
        self._waited = 0.0
        content = replace(Content.of(iteration, pieces, meta, config_yaml), accompany=accompany)
        if self._thread is None:
            return self._write(content, started, None)
        content = replace(content, parts=self._memory.snapshot(content.parts))
        self._pending = self._thread.submit(self._write, content, started, time.monotonic() - started)
        return None

    def _write(self, content: Content, started: float, stalled: float | None) -> Saved:
        config = self._config
        retention = Retention(config.keep_last_checkpoints, config.save_retain_interval, config.keep_weights_of_older)
        destination = Destination(Path(config.save), retention, config.verify_integrity)
        num_bytes = write_checkpoint(destination, content, self._group)
        seconds = time.monotonic() - started
        return Saved(content.iteration, num_bytes, seconds, seconds if stalled is None else stalled)

    @property
    def busy(self) -> bool:
        """Whether this rank is writing an asynchronous save: if not, :meth:`wait` returns at once."""
        return self._pending is not None and not self._pending.done()

    def wait(self) -> Saved | None:
        """Return once an asynchronous save has ended, with what it has saved; raise what it failed with."""
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        started = time.monotonic()
        try:
            return pending.result()
        finally:
            self._waited += time.monotonic() - started

    def close(self) -> None:
        """Wait for an asynchronous save, then let other jobs use the --save directory."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
            if self._lock is not None:
                self._lock.release()

    def resume(self) -> Store | None:
        """Open the checkpoint that --load and --ckpt-step mean, the same on every rank.

        None if --load is the --save directory of a job that starts for the first time, and
        --exit-on-missing-checkpoint is not set.
        """
        load, step = Path(self._config.load), self._config.ckpt_step
        failure = f"--load {load} cannot be read"
        may_be_missing = self._continues_its_own and step is None and not self._config.exit_on_missing_checkpoint
        fresh = together(lambda: is_fresh(load), self._group, failure)
        if may_be_missing and all(gather_objects(fresh, self._group)):
            logger.info(f"no checkpoint in {load} yet: starting from the beginning")
            return None
        found, problem = attempt(lambda: find_checkpoint(load, step), failure)
        outcomes = gather_objects(problem if found is None else found.identity, self._group)
        if len(set(outcomes)) > 1:
            raise shared_error(f"all ranks must load the same checkpoint; in --load they find:\n{by_rank(outcomes)}")
        if found is None:
            raise shared_error(f"--load: {problem}")
        if self._group.rank == 0:
            for warning in found.warnings:
                logger.warning(warning)
        if self._config.verify_integrity:
            self._verify(found.store)
        logger.info(f"loading iteration {found.store.meta['iteration']} from {found.store.directory}")
        return found.store

    @property
    def _continues_its_own(self) -> bool:
        save, load = self._config.save, self._config.load
        return None not in (save, load) and Path(save).resolve() == Path(load).resolve()

    def _verify(self, store: Store) -> None:
        if not store.has_checksums and self._group.rank == 0:
            logger.warning(f"{store.directory} was saved without checksums: only sizes can be verified")
        own_files = store.files[self._group.rank :: self._group.size]
        corrupt = together(lambda: store.corrupt_files(own_files), self._group, f"{store.directory} cannot be read")
        names = sorted(name for names in gather_objects(corrupt, self._group) for name in names)
        if names:
            raise shared_error(
                f"{store.directory} is damaged: {', '.join(names)} no longer hold what was written (checksums differ): "
                "resume from another checkpoint (--ckpt-step)."
            )

    def load(self, store: Store, pieces: Sequence[Piece], strictness: Strictness = Strictness()) -> None:
        """Fill the pieces of all ranks from the checkpoint, after comparing it with what they want.

        Raises :class:`CheckpointError` that lists missing, surplus and misshapen tensors by name.
        """
        present = readable_pieces(store, pieces, self._group, strictness)
        failure = f"{store.directory} cannot be read"
        together(lambda: store.read_into(present, convert=strictness.convert), self._group, failure)
