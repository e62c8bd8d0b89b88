"""Directories of torch.distributed.checkpoint: a pickled ``.metadata``, and files of chunks that it lists.

Each chunk is a box of a named tensor, or an object, as :func:`torch.save` writes it, somewhere in a ``.distcp`` file.
"""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

import torch

from megalite.checkpoint.index import coverage_problem
from megalite.convert.tensors import load_pickle
from megalite.errors import CheckpointError
from megalite.state import Box

METADATA = ".metadata"

_RECORDS = {
    "torch.distributed.checkpoint.metadata": (
        "Metadata MetadataIndex TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata TensorProperties "
        "StorageMeta _MEM_FORMAT_ENCODING"
    ),
    "torch.distributed.checkpoint.filesystem": "_StorageInfo _StoragePrefix",
    # The plans of all ranks, which Megatron Core keeps to write the next checkpoint alike.
    "torch.distributed.checkpoint.planner": "SavePlan WriteItem WriteItemType TensorWriteData BytesIOWriteData",
    "megatron.core.dist_checkpointing.strategies.torch": "MCoreMetadata MCoreSavePlan",
    "torch.distributed._shard.sharded_tensor.metadata": "TensorProperties MEM_FORMAT_ENCODING",
    "torch.serialization": "_get_layout",
    "pathlib": "PosixPath PurePosixPath Path",
    "pathlib._local": "PosixPath PurePosixPath Path",
    "builtins": "getattr",  # How some versions of Python write a member of an enumeration.
}


class _Record:
    """Stands for an object of any known class: what it was made of, and nothing that could run."""

    def __init__(self, *arguments: Any):
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)
        else:
            self.state = state


class _MetadataUnpickler(pickle.Unpickler):
    """Makes dtypes, sizes and records; raises UnpicklingError with the name of anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _RECORDS.get(module, "").split():
            return _Record
        if (module, name) == ("torch", "Size"):
            return tuple
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch" and isinstance(value := getattr(torch, name, None), torch.dtype):
            return value
        raise pickle.UnpicklingError(f"{module}.{name}")


@dataclass(frozen=True)
class _Span:
    """Where a chunk lies."""

    file: str
    start: int
    length: int


@dataclass(frozen=True)
class ChunkedTensor:
    """A tensor of the directory: disjoint boxes that cover it, each with its place."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    chunks: tuple[tuple[Box, _Span], ...]


class ChunkedDirectory:
    """An open directory. Its tensors are read box by box; nothing is unpickled but tensors and known types.

    Raises :class:`CheckpointError` that names what is missing, damaged or not known.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        metadata = _read_metadata(directory / METADATA)
        try:
            spans = _spans(metadata)
            self.tensors = {
                name: _tensor(entry, spans.get(name, {}))
                for name, entry in metadata.state_dict_metadata.items()
                if hasattr(entry, "chunks")
            }
        except (AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
            raise CheckpointError(
                f"{directory / METADATA} must list the tensors of a checkpoint: it is damaged ({error!r})."
            ) from error
        self.objects = {name: places[None] for name, places in spans.items() if None in places}
        self._check_files([span for places in spans.values() for span in places.values()])

    def _check_files(self, spans: Sequence[_Span]) -> None:
        ends: dict[str, int] = {}
        for span in spans:
            ends[span.file] = max(ends.get(span.file, 0), span.start + span.length)
        problems = []
        for file, end in sorted(ends.items()):
            path = self.directory / file
            if Path(file).name != file:
                problems.append(f"{file} is not a plain file name")
            elif not path.is_file():
                problems.append(f"{file} is missing")
            elif path.stat().st_size < end:
                problems.append(f"{file} must have {end} bytes, it has {path.stat().st_size}")
        if problems:
            raise CheckpointError(f"{self.directory} is not a complete checkpoint: {'; '.join(problems)}.")

    def read(self, name: str, box: Box) -> torch.Tensor:
        """A box of a tensor, in its stored dtype. Of the chunks that overlap it, one is in memory at a time."""
        tensor = self.tensors[name]
        inside = not box.numel or Box.whole(tensor.shape).intersect(box) == box
        assert inside, f"{name}: {box} is outside {tensor.shape}"
        out = torch.empty(box.extent, dtype=tensor.dtype)
        for chunk_box, span in tensor.chunks:
            overlap = chunk_box.intersect(box)
            if overlap is not None:
                chunk = self._load(span, ())
                found = (tuple(chunk.shape), chunk.dtype) if isinstance(chunk, torch.Tensor) else type(chunk).__name__
                if found != (chunk_box.extent, tensor.dtype):
                    raise CheckpointError(
                        f"{self.directory / span.file} is damaged: at byte {span.start} must be {chunk_box.extent} of "
                        f"{name} in {tensor.dtype}; it is {found}."
                    )
                out[overlap.inside(box)].copy_(chunk[overlap.inside(chunk_box)])
        return out

    def read_object(self, name: str, allowed: Sequence[Any]) -> Any:
        """An object that is no tensor, made of tensors, plain containers and the types ``allowed`` alone."""
        return self._load(self.objects[name], allowed)

    def _load(self, span: _Span, allowed: Sequence[Any]) -> Any:
        path = self.directory / span.file
        with open(path, "rb") as file:
            file.seek(span.start)
            return load_pickle(path, allowed, io.BytesIO(file.read(span.length)))


def _read_metadata(path: Path) -> _Record:
    try:
        with open(path, "rb") as file:
            metadata = _MetadataUnpickler(file).load()
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} must be metadata of torch.distributed.checkpoint; it holds what is not known, and is not "
            f"unpickled: {error}."
        ) from error
    except Exception as error:  # Bytes that are no pickle can fail in any way.
        raise CheckpointError(f"{path} must be metadata of torch.distributed.checkpoint: {error!r}.") from error
    if not isinstance(metadata, _Record) or not isinstance(getattr(metadata, "storage_data", None), dict):
        raise CheckpointError(f"{path} must be metadata of torch.distributed.checkpoint that says where its data lies.")
    return metadata


def _spans(metadata: _Record) -> dict[str, dict[tuple[int, ...] | None, _Span]]:
    """Name -> offset of the chunk, None for an object -> place."""
    spans: dict[str, dict[tuple[int, ...] | None, _Span]] = {}
    for index, info in metadata.storage_data.items():
        if getattr(info, "transform_descriptors", None):
            raise ValueError(f"{index.fqn} is stored transformed ({', '.join(info.transform_descriptors)})")
        offset = getattr(index, "offset", None)
        span = _Span(info.relative_path, info.offset, info.length)
        spans.setdefault(index.fqn, {})[None if offset is None else tuple(offset)] = span
    return spans


def _tensor(entry: _Record, spans: dict[tuple[int, ...] | None, _Span]) -> ChunkedTensor:
    properties = entry.properties
    dtype = properties.state[0] if hasattr(properties, "state") else properties.dtype
    boxes = [Box(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks]
    shape = tuple(entry.size)
    outside = [box for box in boxes if box.numel and Box.whole(shape).intersect(box) != box]
    problem = f"{outside[0]} is outside shape {shape}" if outside else coverage_problem(Box.whole(shape), boxes)
    if problem:
        raise ValueError(problem)
    return ChunkedTensor(dtype, shape, tuple((box, spans[box.offset]) for box in boxes))
