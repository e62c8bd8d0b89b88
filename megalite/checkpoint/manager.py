"""CheckpointManager: what the training loop knows of checkpoints: save, resume, load."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterable, Sequence

from megalite.checkpoint.agree import attempt, by_rank, shared_error, together
from megalite.checkpoint.locate import find_checkpoint, is_fresh
from megalite.checkpoint.lock import DirectoryLock
from megalite.checkpoint.match import Strictness, readable_pieces
from megalite.checkpoint.piece import Piece
from megalite.checkpoint.policy import Retention
from megalite.checkpoint.store import Store
from megalite.checkpoint.writer import Content, Destination, write_checkpoint
from megalite.config import CheckpointConfig
from megalite.log import logger
from megalite.parallel.collectives import gather_objects
from megalite.parallel.group import Group


class CheckpointManager:
    """Saves to ``config.save`` and loads from ``config.load``. Every method is called by all ranks of ``group``.

    The --save directory is made and locked at once, so that an unsuitable one ends the job before it trains. With
    ``async_save``, writing goes on in a thread while training continues, and ``group`` must be used by nothing else.
    With ``verify_integrity``, checksums of the shards are written, and compared before a checkpoint is loaded. Errors
    are :class:`CheckpointError`, the same on every rank.
    """

    def __init__(
        self, config: CheckpointConfig, group: Group, *, async_save: bool = False, verify_integrity: bool = False
    ):
        self._config, self._group = config, group
        self._verify_integrity = verify_integrity
        self._lock: DirectoryLock | None = None
        self._thread = ThreadPoolExecutor(1, "checkpoint") if async_save else None
        self._pending: Future | None = None
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

    def save(self, iteration: int, pieces: Iterable[Piece], meta: dict[str, Any], config_yaml: str) -> None:
        """Write a checkpoint of what all ranks' pieces hold now. One of the same iteration is replaced.

        ``meta`` is JSON data, equal on all ranks. With ``async_save`` it returns when the pieces are copied, after
        waiting for an earlier save to end; a failure of that one is raised here.
        """
        self.wait()
        content = Content.of(iteration, pieces, meta, config_yaml)
        retention = Retention(self._config.keep_last_checkpoints, self._config.save_retain_interval)
        destination = Destination(Path(self._config.save), retention, self._verify_integrity)
        if self._thread is None:
            write_checkpoint(destination, content, self._group)
        else:
            self._pending = self._thread.submit(write_checkpoint, destination, content.snapshot(), self._group)

    def poll(self) -> None:
        """Raise what an asynchronous save has failed with by now, if it did. Call it at each step."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Return once an asynchronous save has ended; raise what it failed with."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

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
        if self._verify_integrity:
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
