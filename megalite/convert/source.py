"""Source: a checkpoint of any format, seen as ours: canonical tensors by name, of which any box can be had."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Iterable, Mapping

import torch

from megalite.checkpoint.piece import STATE_PREFIX, Piece
from megalite.checkpoint.shard import dtype_name
from megalite.config import Config
from megalite.errors import CheckpointError
from megalite.state import Box


class Source(ABC):
    """What a checkpoint holds. Nothing is read before it is asked for."""

    directory: Path
    config: Config
    """Of the run that wrote it, as far as the format tells; ``model.vocab_size`` is set."""
    meta: dict[str, Any]
    """``iteration`` and the other counters of ``meta.json``."""
    extras: Mapping[str, Path]
    """Files that belong to the model besides, by their names in a Hugging Face directory; see :mod:`.extras`."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, optimizer state included."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Global shape of a tensor, without padding of the vocabulary."""

    @abstractmethod
    def dtype(self, name: str) -> str:
        """Stored dtype of a tensor, as in ``float32``."""

    @abstractmethod
    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        """Copy a box of a tensor into ``out``, of the shape ``box.extent`` and any dtype."""

    def read(self, name: str) -> torch.Tensor:
        """A whole tensor, in its stored dtype."""
        shape = self.shape(name)
        tensor = torch.empty(shape, dtype=getattr(torch, self.dtype(name)))
        self.fill(name, Box.whole(shape), tensor)
        return tensor

    def read_into(self, pieces: Iterable[Piece], convert: bool = False) -> None:
        """Fill every piece, as :meth:`megalite.checkpoint.store.Store.read_into` does."""
        for piece in pieces:
            self.check_piece(piece, convert)
            self.fill(piece.name, piece.box, piece.tensor.detach())

    def check_piece(self, piece: Piece, convert: bool) -> None:
        """Raise :class:`CheckpointError` unless the tensor is there with the piece's global shape and dtype."""
        if piece.name not in self.names():
            raise CheckpointError(f"{self.directory} must contain {piece.name}: it does not.")
        stored = (self.shape(piece.name), self.dtype(piece.name))
        wanted = (piece.global_shape, dtype_name(piece.tensor.dtype))
        if stored[0] != wanted[0] or (stored[1] != wanted[1] and not convert):
            raise CheckpointError(f"{piece.name} must be {wanted}; in {self.directory} it is {stored}.")

    def num_bytes(self, name: str) -> int:
        """Size of a tensor as stored."""
        return Box.whole(self.shape(name)).numel * getattr(torch, self.dtype(name)).itemsize


class View(Source):
    """Another source, some of whose answers differ. Base of the changes that a conversion makes on the way."""

    def __init__(self, base: Source):
        self.base = base
        self.directory, self.config, self.meta, self.extras = base.directory, base.config, base.meta, base.extras

    def names(self) -> tuple[str, ...]:
        return self.base.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.base.shape(name)

    def dtype(self, name: str) -> str:
        return self.base.dtype(name)

    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        self.base.fill(name, box, out)


class WithoutOptimizer(View):
    """The parameters alone."""

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.base.names() if not name.startswith(STATE_PREFIX))


class Recast(View):
    """Parameters in another dtype. Their float32 main copies come from, or become, the parameters themselves.

    So bfloat16 and float32 checkpoints with optimizer state become each other without loss.
    """

    def __init__(self, base: Source, dtype: str):
        super().__init__(base)
        self._dtype = dtype
        flags = {"bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}
        precision = {flag: name == dtype for name, flag in flags.items()}
        self.config = base.config.replace(**precision)
        names = base.names()
        has_state = any(name.startswith(STATE_PREFIX) for name in names)
        self._main = has_state and dtype in ("bfloat16", "float16")
        parameters = [name for name in names if not name.startswith(STATE_PREFIX)]
        state = [
            name for name in names if name.startswith(STATE_PREFIX) and not name.startswith(f"{STATE_PREFIX}param.")
        ]
        main = [f"{STATE_PREFIX}param.{name}" for name in parameters] if self._main else []
        self._names = tuple(sorted([*parameters, *state, *main]))
        self._stored_main = {name for name in names if name.startswith(f"{STATE_PREFIX}param.")}

    def names(self) -> tuple[str, ...]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self.base.shape(name.removeprefix(f"{STATE_PREFIX}param."))

    def dtype(self, name: str) -> str:
        if name.startswith(STATE_PREFIX):
            return self.base.dtype(name) if name in self.base.names() else "float32"
        return self._dtype

    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        parameter = name.removeprefix(f"{STATE_PREFIX}param.")
        main = f"{STATE_PREFIX}param.{parameter}"
        self.base.fill(main if main in self._stored_main else parameter if name == main else name, box, out)
