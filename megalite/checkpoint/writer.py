"""Writing one checkpoint: every rank its shard, rank 0 the rest, and nothing visible before all of it is on disk."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable

from megalite.checkpoint.agree import together
from megalite.checkpoint.directory import begin, discard, publish, temporary_path, write_file
from megalite.checkpoint.index import INDEX, build_index
from megalite.checkpoint.piece import STATE_PREFIX, Piece, own_part
from megalite.checkpoint.policy import Retention
from megalite.checkpoint.retire import retire_old
from megalite.checkpoint.shard import ShardRecord, shard_name, state_shard_name, write_shard
from megalite.checkpoint.store import CONFIG, META, Store, open_store
from megalite.errors import CheckpointError
from megalite.parallel.collectives import broadcast_object, gather_objects_to
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
    accompany: Callable[[Store], None] | None = None
    """Called by rank 0 with the whole checkpoint before it is published: may write more into its directory."""

    @staticmethod
    def of(iteration: int, pieces: Iterable[Piece], meta: dict[str, Any], config_yaml: str) -> "Content":
        parts = tuple(part for piece in pieces if (part := own_part(piece)) is not None)
        return Content(iteration, parts, {**meta, "iteration": iteration}, config_yaml)


@dataclass(frozen=True)
class Destination:
    """Where checkpoints go, and how."""

    save: Path
    retention: Retention = Retention()
    checksums: bool = False
    """Whether to compute and store the checksum of each shard."""


def write_checkpoint(destination: Destination, content: Content, group: Group) -> int:
    """Write and publish a checkpoint, and return the number of bytes in its shards; a collective of ``group``.

    Raises the same :class:`CheckpointError` on every rank if any rank cannot write. Nothing is left of the attempt
    then, and earlier checkpoints are as they were.
    """
    save = destination.save
    failure = (
        f"the checkpoint of iteration {content.iteration} could not be written to --save {save} "
        "(earlier ones are intact; make room or choose another directory)"
    )
    temporary = temporary_path(save, content.iteration)
    first = group.rank == 0
    try:
        together(lambda: begin(temporary) if first else None, group, failure)
        own = together(lambda: _write_shards(temporary, content, group.rank, destination.checksums), group, failure)
        records = gather_objects_to(own, group)
        num_bytes = together(lambda: _finish(temporary, content, records) if first else None, group, failure)
    except CheckpointError:
        if first:
            discard(temporary)
        raise
    num_bytes = broadcast_object(num_bytes, group)
    if first:
        retire_old(save, content.iteration, destination.retention)
    return num_bytes


def _write_shards(temporary: Path, content: Content, rank: int, checksums: bool) -> list[ShardRecord]:
    parameters = [part for part in content.parts if not part.name.startswith(STATE_PREFIX)]
    state = [part for part in content.parts if part.name.startswith(STATE_PREFIX)]
    records = [write_shard(temporary / shard_name(rank), parameters, checksums)]
    if state:
        records.append(write_shard(temporary / state_shard_name(rank), state, checksums))
    return records


def _finish(temporary: Path, content: Content, records_of_ranks: list[list[ShardRecord]]) -> int:
    records = [record for records in records_of_ranks for record in records]
    others = {
        META: write_file(temporary / META, json.dumps(content.meta, indent=1, sort_keys=True, allow_nan=False) + "\n"),
        CONFIG: write_file(temporary / CONFIG, content.config_yaml),
    }
    write_file(temporary / INDEX, build_index(records, others).to_json())
    store = open_store(temporary)  # Fails where the ranks do not share the directory.
    if content.accompany is not None:
        content.accompany(store)
    publish(temporary)
    return sum(record.stored.num_bytes for record in records)
