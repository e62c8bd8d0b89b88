"""The command line of ``tools/preprocess_data.py``: Megatron-LM's flags."""

import os
from dataclasses import dataclass, field
from typing import Sequence

import tyro

from megalite.data.preprocess.chunks import InputFormat
from megalite.data.preprocess.encoders import Backend
from megalite.data.tokenizers import TokenizerOptions
from megalite.errors import ConfigError
from megalite.log import logger

REFUSED = {
    "--find-optimal-num-workers": "the number of cores is the best number of workers: leave out --workers",
    "--workers-to-check": "it belongs to --find-optimal-num-workers: leave it out",
    "--max-documents": "it belongs to --find-optimal-num-workers: leave it out, and cut the input with head -n",
}
HARMLESS = {
    "--partitions": "the work is shared out by itself",
    "--keep-sequential-samples": "documents always keep their order",
    "--lang": "the rules for sentences are the same for every language",
    "--dataset-impl": "there is one format, the memory-mapped one",
}


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
    """Turn text into PREFIX_KEY_document.bin and .idx, which --data-path of training takes.

    The files do not depend on the number of workers. Documents keep the order of the input. An interrupted run goes on
    when the same command is given again.
    """

    input: tuple[str, ...]
    """Files, directories, patterns such as 'data/*.jsonl', and - for standard input. .gz and .zst are unpacked."""
    input_format: InputFormat = "auto"
    """jsonl: a JSON object a line. text: a file is a document. text-lines: a line is one. parquet: a row is one. auto:
    by the name, *.txt is text, *.parquet is parquet, all else is jsonl."""
    output_prefix: str
    """Path that the names of the output files start with."""
    json_keys: tuple[str, ...] = ("text",)
    """Keys of the texts in each JSON object, or columns of a Parquet file; each key becomes a corpus of its own."""
    split_sentences: bool = False
    """Make each sentence a sequence of its own, as BERT and T5 want it. The corpus is then PREFIX_KEY_sentence."""
    keep_newlines: bool = False
    """With --split-sentences: keep line breaks between sentences at the end of the sentence before."""
    append_eod: bool = False
    """End each document with the tokenizer's end-of-document token."""
    skip_invalid: bool = False
    """Leave lines that cannot be used out and count them, instead of ending at the first."""
    dedup: bool = False
    """Leave documents out whose text has come before, letter for letter (of all keys together)."""
    tokenizer_backend: Backend = "auto"
    """gigatoken: many times as fast, for BPE over bytes. tokenizers: the library that defines the ids (for any other
    tokenizer its own). auto: gigatoken where it is installed and gives the same ids on the first documents."""
    workers: int = field(default_factory=available_cores)
    """Worker processes. Default: one for each core."""
    log_interval: int = 1000
    """Documents between lines of progress, of which there is at most one a second."""
    summary_json: str | None = None
    """File for the counts and rates that are shown at the end."""
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


def check_options(options: PreprocessOptions) -> None:
    """Raises ConfigError for values that cannot be used."""
    if options.workers < 1:
        raise ConfigError(f"--workers must be at least 1; given {options.workers}.")
    if options.log_interval < 1:
        raise ConfigError(f"--log-interval must be at least 1; given {options.log_interval}.")
    if not options.json_keys or len(set(options.json_keys)) < len(options.json_keys):
        raise ConfigError(f"--json-keys must be different keys, at least one; given {' '.join(options.json_keys)!r}.")
    if options.keep_newlines and not options.split_sentences:
        raise ConfigError(
            "--keep-newlines needs --split-sentences, without which every character is kept; given alone: leave it out."
        )
