"""Body of ``tools/merge_datasets.py``: corpora, one after another, as one corpus."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

import numpy as np
import tyro

from megalite.data.indexed import IndexedDataset, bin_path, idx_path, read_header
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.sidecar import Sidecar, read_sidecar
from megalite.errors import DataError
from megalite.log import echo, logger, progress, setup_logging


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Append corpora to one another: their tokens, sequences and documents, as they are.

    Memory does not grow with the result: it is that of the index of one part.
    """

    input: tuple[str, ...]
    """Directories, each of which stands for its corpora (.bin and .idx) sorted by name, and prefixes of single
    corpora."""
    output_prefix: str
    """Prefix of the corpus to write."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Body of the tool; ``arguments`` default to the command line."""
    setup_logging()
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--multimodal" in arguments:
        logger.info("--multimodal changes nothing: the corpora tell whether their sequences have modes")
    merge_datasets(tyro.cli(MergeOptions, args=[argument for argument in arguments if argument != "--multimodal"]))


def merge_datasets(options: MergeOptions) -> None:
    """Write the corpus that ``options`` ask for; it appears at the very end, whole, or not at all.

    Ids of different dtypes become the narrowest that holds all of them. Raises DataError for corpora that are damaged,
    of different kinds, or made by different tokenizers.
    """
    prefixes = find_corpora(options.input)
    if Path(options.output_prefix).resolve() in [Path(prefix).resolve() for prefix in prefixes]:
        raise DataError(
            f"--output-prefix must not be one of the corpora to merge; given {options.output_prefix}, which is: write "
            "elsewhere, or move the result of an earlier merge away."
        )
    sidecar = _common_sidecar(prefixes)
    multimodal = IndexedDataset(prefixes[0]).sequence_modes is not None
    with IndexedDatasetBuilder(options.output_prefix, _common_dtype(prefixes), multimodal) as builder:
        shown = time.monotonic()
        for number, prefix in enumerate(prefixes, 1):
            builder.add_index(prefix)
            if time.monotonic() - shown >= 1.0:
                shown = time.monotonic()
                progress(f"{number} of {len(prefixes)} corpora")
        builder.finalize(sidecar)
    merged = IndexedDataset(options.output_prefix)
    echo(
        f"{options.output_prefix}.bin/.idx ({merged.dtype.name}): {len(prefixes)} corpora, {merged.num_documents:,} "
        f"documents, {merged.num_tokens(0, len(merged)):,} tokens"
    )


def find_corpora(inputs: Sequence[str]) -> list[str]:
    """The prefixes that ``inputs`` name, in their order; those of a directory sorted.

    Raises DataError for a prefix without files, half a pair of files, and a directory without a corpus.
    """
    prefixes: list[str] = []
    for name in inputs:
        found = _in_directory(Path(name)) if Path(name).is_dir() else [name]
        for prefix in found:
            for path in (bin_path(prefix), idx_path(prefix)):
                if not Path(path).is_file():
                    raise DataError(f"--input must name pairs of .bin and .idx files; there is no {path}.")
        prefixes += found
    return prefixes


def _in_directory(directory: Path) -> list[str]:
    prefixes = sorted(
        {str(path.with_suffix("")) for suffix in (".bin", ".idx") for path in directory.glob(f"*{suffix}")}
    )
    if not prefixes:
        raise DataError(f"--input {directory} must hold .bin and .idx files; it holds none.")
    return prefixes


def _common_dtype(prefixes: Sequence[str]) -> np.dtype:
    dtypes = {prefix: read_header(prefix).dtype for prefix in prefixes}
    if len(set(dtypes.values())) > 1:
        described = ", ".join(f"{prefix} has {dtype.name}" for prefix, dtype in list(dtypes.items())[:20])
        if any(dtype.kind == "f" for dtype in dtypes.values()):
            raise DataError(f"corpora to merge must all hold integers, or all the same dtype; {described}.")
        logger.info("%s: the result has %s", described, np.result_type(*dtypes.values()).name)
    return np.result_type(*dtypes.values())


def _common_sidecar(prefixes: Sequence[str]) -> Sidecar | None:
    """The description of the result: what all parts agree on, and the sums of what they count."""
    sidecars = {prefix: read_sidecar(prefix) for prefix in prefixes}
    described = {prefix: sidecar for prefix, sidecar in sidecars.items() if sidecar is not None}
    if not described:
        return None
    first, expected = next(iter(described.items()))
    for prefix, sidecar in sidecars.items():
        if sidecar is None:
            raise DataError(
                f"corpora to merge must all say which tokenizer made them, or none; {first}.json does, and there is no "
                f"{prefix}.json: move the former away to merge without, which gives up the check at training."
            )
        differing = [
            f"{field} {getattr(expected, field)} and {getattr(sidecar, field)}"
            for field in ("tokenizer", "vocab_size", "eod", "append_eod")
            if getattr(expected, field) != getattr(sidecar, field)
        ]
        if differing:
            raise DataError(
                f"corpora to merge must come from one tokenizer; {first} and {prefix} have {', '.join(differing)}: "
                "tokenize the text of one again."
            )
    return Sidecar(
        expected.tokenizer, expected.vocab_size, expected.eod, expected.append_eod, summary=_summary(described)
    )


def _summary(sidecars: dict[str, Sidecar]) -> dict[str, Any]:
    text_bytes = [sidecar.summary.get("text_bytes") for sidecar in sidecars.values()]
    summary: dict[str, Any] = {"merged_corpora": len(sidecars)}
    if None not in text_bytes and sum(text_bytes):
        num_tokens = sum(sidecar.num_tokens for sidecar in sidecars.values())
        summary |= {"text_bytes": sum(text_bytes), "tokens_per_byte": round(num_tokens / sum(text_bytes), 6)}
    return summary
