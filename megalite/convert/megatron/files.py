"""Finding and reading the files of Megatron-LM's ranks; what is in them is unpickled by known types alone."""

import argparse
import io
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Callable

import numpy
import torch

from megalite.checkpoint.directory import TRACKER, iteration_name
from megalite.convert.megatron.layout import RankKey, rank_directory
from megalite.convert.tensors import load_pickle
from megalite.errors import CheckpointError

FILE = "model_optim_rng.pt"


def _plain(*values: Any) -> Any:
    """Stands for a member of an enumeration of Megatron-LM's: its value."""
    return values[0] if values else None


_ENUMERATIONS = (
    "megatron.core.enums.ModelType",
    "megatron.core.enums.Fp8Recipe",
    "megatron.core.transformer.enums.AttnBackend",
    "megatron.core.transformer.enums.AttnMaskType",
    "megatron.core.transformer.enums.AttnType",
    "megatron.core.transformer.enums.LayerType",
    "megatron.core.transformer.enums.ModelType",
    "megatron.core.transformer.enums.CudaGraphScope",
    "megatron.core.rerun_state_machine.RerunMode",
    "megatron.core.rerun_state_machine.RerunState",
    "megatron.core.rerun_state_machine.RerunDiagnostic",
    "megatron.model.enums.PositionEmbeddingType",
)


def known_types() -> list[Any]:
    """What the files of Megatron-LM hold besides tensors: arguments, enumerations, and random states of numpy."""
    reconstruct = numpy.ndarray((0,)).__reduce__()[0]
    arrays = [numpy.dtype, numpy.ndarray, type(numpy.dtype("uint32"))]
    names = [(reconstruct, f"numpy.{package}.multiarray._reconstruct") for package in ("core", "_core")]
    enumerations: list[tuple[Callable[..., Any], str]] = [(_plain, name) for name in _ENUMERATIONS]
    return [argparse.Namespace, io.BytesIO, *arrays, *names, *enumerations]


@dataclass(frozen=True)
class Ranks:
    """A complete set of rank files."""

    directory: Path
    """The ``iter_*`` or ``release`` directory."""
    tp: int
    pp: int

    def file(self, tp: int, pp: int, name: str = FILE) -> Path:
        """The file of a rank."""
        return self.directory / rank_directory(tp, pp, self.pp) / name


def find_ranks(directory: Path, step: int | None) -> Ranks:
    """The rank files of a checkpoint: of ``step``, or of what the tracker names, or in the directory itself.

    Raises :class:`CheckpointError` if there is none, or if a rank's file is missing.
    """
    itself = step is None and any(directory.glob("mp_rank_*"))
    chosen = directory if itself else directory / tracked_name(directory, step)
    pattern = re.compile(r"mp_rank_(\d{2,})(?:_(\d{3}))?(?:_(\d{3}))?")
    names = [entry.name for entry in chosen.iterdir()] if chosen.is_dir() else []
    found = [match for name in names if (match := pattern.fullmatch(name))]
    if not found:
        raise CheckpointError(f"{chosen} must hold mp_rank_* directories: it does not.")
    experts = [match[0] for match in found if match[3]]
    if experts:
        raise CheckpointError(f"{chosen} was written by expert-parallel ranks ({experts[0]}): megalite has no experts.")
    ranks = Ranks(chosen, 1 + max(int(match[1]) for match in found), 1 + max(int(match[2] or 0) for match in found))
    missing = [
        str(path) for pp in range(ranks.pp) for tp in range(ranks.tp) if not (path := ranks.file(tp, pp)).is_file()
    ]
    if missing:
        raise CheckpointError(
            f"a checkpoint of {ranks.tp} x {ranks.pp} ranks must have all their files; missing: {', '.join(missing)}."
        )
    return ranks


def tracked_name(directory: Path, step: int | None) -> str:
    """Name of the directory of a checkpoint: of ``step``, or of what the tracker names."""
    if step is not None:
        return iteration_name(step)
    try:
        text = (directory / TRACKER).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise CheckpointError(
            f"{directory / TRACKER} must name the checkpoint: it cannot be read ({error.strerror})."
        ) from None
    if text != "release" and not text.isdigit():
        raise CheckpointError(f"{directory / TRACKER} must hold an iteration, or release; it holds {text[:40]!r}.")
    return text if text == "release" else iteration_name(int(text))


def read_file(path: Path) -> Any:
    """What a file of a rank holds, its tensors left on disk until they are used."""
    return load_pickle(path, known_types())


@dataclass
class RankFile:
    """The content of one rank's file; its tensors stay on disk until they are used."""

    path: Path
    tp: int
    pp: int

    @cached_property
    def content(self) -> dict[str, Any]:
        """All of it."""
        content = read_file(self.path)
        if not isinstance(content, dict) or not isinstance(content.get("args"), argparse.Namespace):
            raise CheckpointError(
                f"{self.path} must hold a dict with args, a Namespace: this is no checkpoint of Megatron-LM."
            )
        version = content.get("checkpoint_version", 0)
        if version != 3.0:
            raise CheckpointError(
                f"{self.path} must have checkpoint_version 3.0; it has {version}: save it anew with a Megatron-LM of "
                "2021 or later."
            )
        return content

    @cached_property
    def tensors(self) -> dict[RankKey, torch.Tensor]:
        """The parameters of all model chunks, in order."""
        chunks = [name for name in self.content if re.fullmatch(r"model\d*", name)]
        found: dict[RankKey, torch.Tensor] = {}
        for chunk in chunks:
            if "language_model" in self.content[chunk]:
                raise CheckpointError(
                    f"{self.path} has the names of Megatron-LM's legacy models: convert it to Megatron Core's (--saver "
                    "mcore of its tools/checkpoint/convert.py, up to core_v0.12) first."
                )
            for name, tensor in self.content[chunk].items():
                if isinstance(tensor, torch.Tensor) and not name.endswith("._extra_state"):
                    found[RankKey(self.tp, self.pp, int(chunk.removeprefix("model") or 0), name)] = tensor
        return found
