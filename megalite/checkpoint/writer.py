"""Writing one checkpoint: every rank its shard, rank 0 the rest, and nothing visible before all of it is on disk."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterable

from megalite.checkpoint.agree import together
from megalite.checkpoint.directory import begin, delete, discard, list_iterations, publish, temporary_path, write_file
from megalite.checkpoint.index import INDEX, build_index
from megalite.checkpoint.piece import Piece, own_part
from megalite.checkpoint.policy import Retention
from megalite.checkpoint.shard import ShardRecord, shard_name, write_shard
from megalite.checkpoint.store import CONFIG, META, open_store
from megalite.errors import CheckpointError
from megalite.log import logger
from megalite.parallel.collectives import gather_objects
from megalite.parallel.group import Group


@dataclass(frozen=True)
class Content:
    """What one rank gives to a checkpoint."""

    iteration: int
    parts: tuple[Piece, ...]
    """What this rank writes; see :func:`own_part`."""
    meta: dict[str, Any]
    """Whatever is not a tensor, as JSON holds it; equal on all ranks."""
    config_yaml: str

    @staticmethod
    def of(iteration: int, pieces: Iterable[Piece], meta: dict[str, Any], config_yaml: str) -> "Content":
        parts = tuple(part for piece in pieces if (part := own_part(piece)) is not None)
        return Content(iteration, parts, {**meta, "iteration": iteration}, config_yaml)

    def snapshot(self) -> "Content":
        """A copy in host memory, which further training does not change."""
        parts = (replace(part, tensor=part.tensor.detach().to("cpu", copy=True)) for part in self.parts)
        return replace(self, parts=tuple(parts))


@dataclass(frozen=True)
class Destination:
    """Where checkpoints go, and how."""

    save: Path
    retention: Retention = Retention()
    checksums: bool = False
    """Whether to compute and store the checksum of each shard."""


def write_checkpoint(destination: Destination, content: Content, group: Group) -> None:
    """Write and publish a checkpoint; a collective of ``group``.

    Raises the same :class:`CheckpointError` on every rank if any rank cannot write. Nothing is left of the attempt
    then, and earlier checkpoints are as they were.
    """
    started = time.monotonic()
    save = destination.save
    failure = (
        f"the checkpoint of iteration {content.iteration} could not be written to --save {save} "
        "(earlier ones are intact; make room or choose another directory)"
    )
    temporary = temporary_path(save, content.iteration)
    first = group.rank == 0
    try:
        together(lambda: begin(temporary) if first else None, group, failure)
        shard = temporary / shard_name(group.rank)
        record = together(lambda: write_shard(shard, content.parts, destination.checksums), group, failure)
        records = gather_objects(record, group)
        together(lambda: _finish(temporary, content, records) if first else None, group, failure)
    except CheckpointError:
        if first:
            discard(temporary)
        raise
    if first:
        delete_old(save, content.iteration, destination.retention)
    gigabytes = sum(record.stored.num_bytes for record in records) / 1e9
    seconds = time.monotonic() - started
    logger.info(f"saved iteration {content.iteration} to {save}: {gigabytes:.2f} GB in {seconds:.1f} s")


def _finish(temporary: Path, content: Content, records: list[ShardRecord]) -> None:
    others = {
        META: write_file(temporary / META, json.dumps(content.meta, indent=1, sort_keys=True, allow_nan=False) + "\n"),
        CONFIG: write_file(temporary / CONFIG, content.config_yaml),
    }
    write_file(temporary / INDEX, build_index(records, others).to_json())
    open_store(temporary)  # Fails where the ranks do not share the directory.
    publish(temporary)


def delete_old(save: Path, iteration: int, retention: Retention) -> None:
    """Delete what ``retention`` does not keep beside the new checkpoint of ``iteration``; a failure is a warning."""
    for doomed in retention.doomed(list_iterations(save), iteration):
        try:
            delete(save, doomed)
        except OSError as error:
            logger.warning(f"the checkpoint of iteration {doomed} in {save} could not be deleted: {error}")
