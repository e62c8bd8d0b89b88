"""The index of a checkpoint: which box of which tensor lies in which file. Small, JSON, written last."""

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Sequence

from megalite.checkpoint.shard import DTYPES, ShardRecord, StoredFile, dtype_name
from megalite.errors import CheckpointError
from megalite.state import Box

INDEX = "index.json"
FORMAT = "megalite"
VERSION = 1
_DTYPE_NAMES = {dtype_name(dtype) for dtype in DTYPES}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the checkpoint: disjoint boxes that cover it, each with the name of the file that holds it."""

    dtype: str
    shape: tuple[int, ...]
    boxes: tuple[tuple[str, Box], ...]


@dataclass(frozen=True)
class Index:
    """The contents of ``index.json``."""

    files: dict[str, StoredFile]
    """Every other file of the checkpoint by name."""
    tensors: dict[str, StoredTensor]

    def to_json(self) -> str:
        """The text of the file; the same index always gives the same text."""
        files = {name: _file_entry(stored) for name, stored in sorted(self.files.items())}
        lines = [f"{json.dumps(name)}: {_tensor_json(tensor)}" for name, tensor in sorted(self.tensors.items())]
        tensors = ",\n".join(lines)
        return (
            f'{{"format": "{FORMAT}", "version": {VERSION},\n"files": {json.dumps(files, indent=1)},\n'
            f'"tensors": {{\n{tensors}\n}}}}\n'
        )


def _file_entry(stored: StoredFile) -> dict[str, Any]:
    checksum = {} if stored.crc32 is None else {"crc32": f"{stored.crc32:08x}"}
    return {"bytes": stored.num_bytes, **checksum}


def _tensor_json(tensor: StoredTensor) -> str:
    boxes = [{"file": file, "offset": box.offset, "extent": box.extent} for file, box in tensor.boxes]
    return json.dumps({"dtype": tensor.dtype, "shape": tensor.shape, "boxes": boxes})


def build_index(records: Iterable[ShardRecord], others: dict[str, StoredFile]) -> Index:
    """The index of the shards of all ranks, and of the other files, once every tensor is seen to be whole."""
    files = dict(others)
    found: dict[str, tuple[str, tuple[int, ...], list[tuple[str, Box]]]] = {}
    for record in records:
        files[record.file] = record.stored
        for name, dtype, shape, box in record.boxes:
            tensor = found.setdefault(name, (dtype, shape, []))
            assert tensor[:2] == (dtype, shape), f"{name}: {tensor[:2]} on one rank, {(dtype, shape)} in {record.file}"
            if box.numel:
                tensor[2].append((record.file, box))
    tensors = {}
    for name, (dtype, shape, boxes) in found.items():
        problem = coverage_problem(Box.whole(shape), [box for _, box in boxes])
        assert problem is None, f"the ranks' pieces of {name} must cover it once: {problem}"
        tensors[name] = StoredTensor(dtype, shape, tuple(sorted(boxes, key=lambda entry: entry[1].offset)))
    return Index(files, tensors)


def coverage_problem(whole: Box, boxes: Sequence[Box]) -> str | None:
    """Why ``boxes``, each inside ``whole``, do not cover each of its elements exactly once; None when they do."""
    covered = sum(box.numel for box in boxes)
    overlap = _first_overlap(boxes)
    if overlap is not None:
        return f"boxes {overlap[0]} and {overlap[1]} overlap"
    if covered != whole.numel:
        return f"{covered} of {whole.numel} elements of {whole} are there"
    return None


def _first_overlap(boxes: Sequence[Box]) -> tuple[Box, Box] | None:
    """Two boxes that overlap, if any do.

    Boxes are divided where some dim divides them, and compared in pairs only where none does: a tensor may be in
    thousands, and slices of its rows share all but a middle dim.
    """
    undivided = [list(boxes)]
    while undivided:
        group = undivided.pop()
        parts = _divided(group)
        if len(parts) > 1:
            undivided += parts
            continue
        for box, other in itertools.combinations(group, 2):
            if box.intersect(other):
                return box, other
    return None


def _divided(boxes: list[Box]) -> list[list[Box]]:
    """The boxes in groups of which no two share an index of some dim; in one group if there is no such dim."""
    for dim in range(len(boxes[0].offset) if len(boxes) > 1 else 0):
        groups: list[list[Box]] = []
        end = 0
        for box in sorted(boxes, key=lambda box: box.offset[dim]):
            if not groups or box.offset[dim] >= end:
                groups.append([])
            groups[-1].append(box)
            end = max(end, box.offset[dim] + box.extent[dim])
        if len(groups) > 1:
            return groups
    return [boxes]


def read_index(directory: Path) -> Index:
    """Read ``index.json``. Raises :class:`CheckpointError` if it is missing, damaged or of another format."""
    path = directory / INDEX
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{directory} is not a complete checkpoint: it must contain {INDEX}; {describe(directory)}."
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: it is not JSON ({error}).") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise CheckpointError(f'{path} must say "format": "{FORMAT}": this is not an index of a megalite checkpoint.')
    if raw.get("version") != VERSION:
        raise CheckpointError(
            f"{path} must have format version {VERSION}; it has {raw.get('version')}: "
            "read it with the megalite that wrote it."
        )
    try:
        return _parse(raw)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise CheckpointError(f"{path} is damaged: an entry is not as the format has it ({error!r}).") from error


def _parse(raw: dict[str, Any]) -> Index:
    files = {name: _stored_file(entry) for name, entry in raw["files"].items()}
    outside = [name for name in files if Path(name).name != name]
    if outside:
        raise ValueError(f"{outside[0]} is not a plain file name")
    tensors = {}
    for name, entry in raw["tensors"].items():
        shape = tuple(map(int, entry["shape"]))
        boxes = tuple((str(box["file"]), _box(box)) for box in entry["boxes"])
        for file, box in boxes:
            if file not in files:
                raise ValueError(f"{name} lies in {file}, which is not listed")
            if len(box.offset) != len(shape) or Box.whole(shape).intersect(box) != box:
                raise ValueError(f"{name}: {box} is outside shape {shape}")
        if entry["dtype"] not in _DTYPE_NAMES:
            raise ValueError(f"{name} has dtype {entry['dtype']}")
        tensors[name] = StoredTensor(entry["dtype"], shape, boxes)
    return Index(files, tensors)


def _stored_file(entry: dict[str, Any]) -> StoredFile:
    return StoredFile(int(entry["bytes"]), int(entry["crc32"], 16) if "crc32" in entry else None)


def _box(entry: dict[str, Any]) -> Box:
    return Box(tuple(map(int, entry["offset"])), tuple(map(int, entry["extent"])))


def describe(directory: Path) -> str:
    """What a directory that is not a checkpoint of ours seems to be instead."""
    if not directory.is_dir():
        return "there is no such directory"
    names = sorted(entry.name for entry in directory.iterdir())
    if any(name.startswith("mp_rank_") for name in names):
        return "it looks like a checkpoint of Megatron-LM's torch format, which tools/checkpoint_convert.py converts"
    if ".metadata" in names or any(name.endswith(".distcp") for name in names):
        return (
            "it looks like a directory of torch.distributed.checkpoint; those of Megatron-LM's torch_dist format "
            "tools/checkpoint_convert.py converts"
        )
    if "config.json" in names:
        return "it looks like a Hugging Face model directory"
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"it contains {listed}" if names else "it is empty"
