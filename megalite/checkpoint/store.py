"""Store: a complete checkpoint, open for reading. Any box of any tensor can be had, however it was cut when written."""

import json
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any, Iterable, Sequence

import torch
from safetensors import SafetensorError, safe_open

from megalite.checkpoint.index import INDEX, Index, coverage_problem, read_index
from megalite.checkpoint.piece import Piece
from megalite.checkpoint.shard import CHUNK_BYTES, StoredFile, dtype_name, tensor_key
from megalite.errors import CheckpointError
from megalite.state import Box

META = "meta.json"
CONFIG = "config.yaml"


class Store:
    """A checkpoint directory whose files are all there with the sizes that its index states."""

    def __init__(self, directory: Path, index: Index, meta: dict[str, Any]):
        self.directory = directory
        self._index = index
        self.meta = meta
        """Iteration, counters and whatever else the run wrote besides tensors."""

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that the index lists, in order."""
        return tuple(sorted(self._index.files))

    def names(self) -> tuple[str, ...]:
        """Names of the tensors, in order."""
        return tuple(sorted(self._index.tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        """Global shape of a tensor."""
        return self._index.tensors[name].shape

    def dtype(self, name: str) -> str:
        """Stored dtype of a tensor, as in ``float32``."""
        return self._index.tensors[name].dtype

    def boxes(self, name: str) -> tuple[tuple[str, Box], ...]:
        """How a tensor was cut: (file, box) of every part."""
        return self._index.tensors[name].boxes

    def config_yaml(self) -> str:
        """The resolved configuration of the run that wrote the checkpoint."""
        return (self.directory / CONFIG).read_text(encoding="utf-8")

    def read(self, name: str) -> torch.Tensor:
        """A whole tensor, in its stored dtype."""
        stored = self._index.tensors[name]
        tensor = torch.empty(stored.shape, dtype=getattr(torch, stored.dtype))
        self.read_into([Piece(name, stored.shape, Box.whole(stored.shape), tensor)])
        return tensor

    def read_into(self, pieces: Iterable[Piece], convert: bool = False) -> None:
        """Fill every piece, on whatever device it is, from the parts that overlap it; only their bytes are read.

        Raises :class:`CheckpointError` if a name is missing, a global shape differs, a dtype differs and ``convert``
        is not set, or a file does not hold what the index says.
        """
        plan: dict[str, list[tuple[Piece, Box, Box]]] = defaultdict(list)
        for piece in pieces:
            for file, stored_box, overlap in self._sources(piece, convert):
                plan[file].append((piece, stored_box, overlap))
        for file in sorted(plan):
            self._copy(file, plan[file])

    def _sources(self, piece: Piece, convert: bool) -> list[tuple[str, Box, Box]]:
        stored = self._index.tensors.get(piece.name)
        if stored is None:
            raise CheckpointError(f"{self.directory} must contain {piece.name}: it does not.")
        if stored.shape != piece.global_shape:
            raise CheckpointError(
                f"{piece.name} must have shape {piece.global_shape}; in {self.directory} it has {stored.shape}: "
                "use the model configuration that wrote the checkpoint."
            )
        dtype = dtype_name(piece.tensor.dtype)
        if stored.dtype != dtype and not convert:
            raise CheckpointError(f"{piece.name} must be stored as {dtype}; in {self.directory} it is {stored.dtype}.")
        sources = [(file, box, overlap) for file, box in stored.boxes if (overlap := box.intersect(piece.box))]
        problem = coverage_problem(piece.box, [overlap for _, _, overlap in sources])
        if problem:
            raise CheckpointError(f"{self.directory / INDEX} is damaged: of {piece.name}, {problem}.")
        return sources

    def _copy(self, file: str, copies: Sequence[tuple[Piece, Box, Box]]) -> None:
        path = self.directory / file
        try:
            # get_tensor maps the file: what is not copied from the mapped tensor is not read either.
            with safe_open(path, framework="pt") as shard:
                for piece, stored_box, overlap in copies:
                    source = shard.get_tensor(tensor_key(piece.name, stored_box))
                    self._check_part(path, source, piece.name, stored_box)
                    piece.tensor.detach()[overlap.inside(piece.box)].copy_(source[overlap.inside(stored_box)])
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error

    def _check_part(self, path: Path, source: torch.Tensor, name: str, box: Box) -> None:
        expected = (box.extent, self.dtype(name))
        given = (tuple(source.shape), dtype_name(source.dtype))
        if given != expected:
            key = tensor_key(name, box)
            raise CheckpointError(f"{path} is damaged: {key} must be {expected} as in {INDEX}; it is {given}.")

    @property
    def has_checksums(self) -> bool:
        """Whether the checkpoint was written with checksums of all its files."""
        return all(stored.crc32 is not None for stored in self._index.files.values())

    def corrupt_files(self, files: Iterable[str]) -> list[str]:
        """Those of ``files`` whose contents no longer have the checksum that the index states. Reads them whole."""
        checksums = {name: self._index.files[name].crc32 for name in files}
        checked = {name: crc32 for name, crc32 in checksums.items() if crc32 is not None}
        return [name for name, crc32 in checked.items() if crc32_of(self.directory / name) != crc32]


def crc32_of(path: Path) -> int:
    """CRC-32 of a file's contents."""
    crc32 = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc32 = zlib.crc32(chunk, crc32)
    return crc32


def open_store(directory: Path) -> Store:
    """Open the checkpoint in ``directory``: every file must be there and have its size, the small ones their checksum.

    Raises :class:`CheckpointError` that names what is missing or damaged.
    """
    index = read_index(directory)
    problems = [problem for name, stored in index.files.items() if (problem := _problem(directory / name, stored))]
    problems += [f"{INDEX} does not list {name}" for name in (META, CONFIG) if name not in index.files]
    if problems:
        raise CheckpointError(f"{directory} is not a complete checkpoint: {'; '.join(problems)}.")
    return Store(directory, index, _read_meta(directory / META))


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        int(meta["iteration"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} must be a JSON object with the iteration: it is damaged ({error!r}).") from error
    return meta


def _problem(path: Path, stored: StoredFile) -> str | None:
    try:
        found = path.stat().st_size
        if found != stored.num_bytes:
            return f"{path.name} must have {stored.num_bytes} bytes, it has {found}"
        if path.name in (META, CONFIG) and stored.crc32 not in (None, crc32_of(path)):
            return f"{path.name} no longer holds what was written (its checksum differs)"
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return None
