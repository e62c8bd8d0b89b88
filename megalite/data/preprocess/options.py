"""The command line of ``tools/preprocess_data.py``: Megatron-LM's flags."""

import os
from dataclasses import dataclass, field
from typing import Sequence

import tyro

from megalite.data.tokenizers import TokenizerOptions
from megalite.errors import ConfigError
from megalite.log import logger

REFUSED = {
    "--split-sentences": "sequences of single sentences serve BERT and T5, which cannot be trained yet: leave it out, and "
    "each text becomes one sequence; a list of strings in the JSON becomes one sequence per string",
    "--keep-newlines": "it belongs to --split-sentences, without which every character is kept: leave it out",
    "--find-optimal-num-workers": "the number of cores is the best number of workers: leave out --workers",
    "--workers-to-check": "it belongs to --find-optimal-num-workers: leave it out",
    "--max-documents": "it belongs to --find-optimal-num-workers: leave it out, and cut the input with head -n",
}
HARMLESS = {
    "--partitions": "the work is shared out by itself",
    "--keep-sequential-samples": "documents always keep their order",
    "--lang": "it only chooses a splitter of sentences",
    "--dataset-impl": "there is one format, the memory-mapped one",
}


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
    """Turn JSON lines into PREFIX_KEY_document.bin and .idx, which --data-path of training takes.

    The files do not depend on the number of workers. Documents keep the order of the lines.
    """

    input: tuple[str, ...]
    """JSON-lines files, gzip-compressed or not, and directories of such files (*.jsonl, *.json, and these with .gz)."""
    output_prefix: str
    """Path that the names of the output files start with."""
    json_keys: tuple[str, ...] = ("text",)
    """Keys of the texts in each JSON object; each key becomes a corpus of its own."""
    append_eod: bool = False
    """End each document with the tokenizer's end-of-document token."""
    skip_invalid: bool = False
    """Leave lines that cannot be used out and count them, instead of ending at the first."""
    workers: int = field(default_factory=available_cores)
    """Worker processes. Default: one for each core."""
    log_interval: int = 1000
    """Documents between lines of progress, of which there is at most one a second."""
    tokenizer: TokenizerOptions = field(default_factory=TokenizerOptions)


def parse_options(arguments: Sequence[str]) -> PreprocessOptions:
    """The options that a command line gives. Raises ConfigError for a flag of Megatron-LM that cannot be honoured."""
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(PreprocessOptions, args=without_harmless(arguments), config=config)


def without_harmless(arguments: Sequence[str]) -> list[str]:
    """``arguments`` without the flags that change nothing here; each is named in the log."""
    kept: list[str] = []
    dropping = False
    for argument in arguments:
        if argument.startswith("--"):
            flag = argument.partition("=")[0].replace("_", "-")
            if flag in REFUSED:
                raise ConfigError(f"{flag} cannot be honoured: {REFUSED[flag]}.")
            dropping = flag in HARMLESS
            if dropping:
                logger.info("%s changes nothing: %s", flag, HARMLESS[flag])
        if not dropping:
            kept.append(argument)
    return kept
