"""Files of named tensors as other programs write them: safetensors, read in place and written tensor by tensor; and
pickles."""

import json
import os
import pickle
from pathlib import Path
from typing import IO, Any, Callable, Sequence

import torch
from safetensors import SafetensorError, safe_open

from megalite.checkpoint.shard import DTYPES
from megalite.errors import CheckpointError

_TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


class SafeFile:
    """A safetensors file. What is not used of a tensor is not read."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._file = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} must be a safetensors file: it cannot be read ({error}).") from error

    def keys(self) -> list[str]:
        """Names of the tensors."""
        return list(self._file.keys())

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return tuple(self._file.get_slice(key).get_shape())

    def dtype(self, key: str) -> torch.dtype:
        """Dtype of a tensor. Raises :class:`CheckpointError` for those that are no plain numbers, as of quantised
        weights."""
        name = self._file.get_slice(key).get_dtype()
        if name not in _TORCH_DTYPES:
            raise CheckpointError(
                f"{self.path}: {key} must have one of the dtypes {', '.join(_TORCH_DTYPES)}; it has {name}. Convert "
                "quantised weights back to one of them first."
            )
        return _TORCH_DTYPES[name]

    def tensor(self, key: str) -> torch.Tensor:
        """A tensor, mapped from the file."""
        return self._file.get_tensor(key)


class PickledFile:
    """A file of :func:`torch.save` with a flat dict of tensors, mapped. Only tensors and plain containers are
    unpickled."""

    def __init__(self, path: Path):
        self.path = path
        content = load_pickle(path)
        if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
            raise CheckpointError(f"{path} must hold a dict of tensors: it does not.")
        self._tensors: dict[str, torch.Tensor] = content

    def keys(self) -> list[str]:
        """Names of the tensors."""
        return list(self._tensors)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return tuple(self._tensors[key].shape)

    def dtype(self, key: str) -> torch.dtype:
        """Dtype of a tensor."""
        return self._tensors[key].dtype

    def tensor(self, key: str) -> torch.Tensor:
        """A tensor, mapped from the file."""
        return self._tensors[key]


def load_pickle(path: Path, allowed: Sequence[Any] = (), part: IO[bytes] | None = None) -> Any:
    """What :func:`torch.save` wrote, its tensors mapped from the file where the format lets them be.

    ``part``: a stream of that part of the file which is meant, if it is not all; its tensors are read.

    A pickle can run any program. So only tensors, plain containers and the types ``allowed`` are made of it; whatever
    else is in the file raises :class:`CheckpointError` with its name.
    """
    try:
        with torch.serialization.safe_globals(list(allowed)):
            source, mapped = (path, _is_zip(path)) if part is None else (part, False)
            return torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except (pickle.UnpicklingError, OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        if isinstance(error, pickle.UnpicklingError) and (named := _what_is_unsafe(error)):
            raise CheckpointError(
                f"{path} holds more than tensors, numbers and known types, and is not unpickled: {named}"
            ) from error
        raise CheckpointError(
            f"{path} must hold what torch.save writes: it cannot be read ({str(error).splitlines()[0]})."
        ) from error


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _what_is_unsafe(error: pickle.UnpicklingError) -> str | None:
    """What torch says of an unsafe file, without its advice to load it nonetheless; None of one that is no pickle."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if "WeightsUnpickler error: " in line or "GLOBAL" in line]
    return lines[0] if lines else None


Entry = tuple[str, torch.dtype, tuple[int, ...]]
"""Name, dtype and shape of a tensor to write."""


def write_safetensors(path: Path, entries: Sequence[Entry], make: Callable[[str], torch.Tensor]) -> None:
    """Write a safetensors file whose tensors are made one after the other, and force it to disk.

    The same tensors always give the same bytes.
    """
    ordered = sorted(entries, key=lambda entry: (-entry[1].itemsize, entry[0]))  # Each is then aligned to its elements.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, dtype, shape in ordered:
        stop = position + num_bytes(dtype, shape)
        header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [position, stop]}
        position = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, dtype, shape in ordered:
            tensor = make(name)
            assert (tensor.dtype, tuple(tensor.shape)) == (
                dtype,
                shape,
            ), f"{name} is {tensor.dtype} {tuple(tensor.shape)}"
            file.write(memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()))
        file.flush()
        os.fsync(file.fileno())


def num_bytes(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """Size of a tensor."""
    return dtype.itemsize * torch.Size(shape).numel()
