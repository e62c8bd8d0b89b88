"""Body of ``tools/train_tokenizer.py``: a byte-level BPE, as GPT-2's, from any text."""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Sequence

import tokenizers
import tyro
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from megalite.data.preprocess.inputs import JSON_SUFFIXES, Block, find_inputs, read_blocks
from megalite.data.preprocess.records import InvalidRecord, parse_records
from megalite.errors import ConfigError, DataError
from megalite.log import echo, logger, progress, setup_logging

TEXT_SUFFIXES = (".txt", ".txt.gz")
NUM_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class TrainTokenizerOptions:
    """Train a byte-level BPE tokenizer and write OUTPUT_DIR/tokenizer.json, for --tokenizer-model and for transformers.

    The same input gives the same tokenizer, whatever the number of cores.
    """

    input: tuple[str, ...]
    """Files (*.jsonl, *.json: JSON lines; any other name: plain text; each may be gzip-compressed) and directories of
    *.jsonl, *.json and *.txt files."""
    output_dir: str
    """Directory for tokenizer.json and tokenizer_config.json."""
    vocab_size: int
    """Number of tokens, special tokens and the 256 bytes included."""
    json_keys: tuple[str, ...] = ("text",)
    """Keys of the texts in each JSON object."""
    special_tokens: tuple[str, ...] = ("<|endoftext|>",)
    """Tokens that no merge makes; they get the ids from 0 on, and the first ends documents."""
    min_frequency: int = 2
    """How often a pair of tokens must occur to be merged."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Body of ``tools/train_tokenizer.py``."""
    setup_logging()
    train_tokenizer(tyro.cli(TrainTokenizerOptions, args=arguments))


def train_tokenizer(options: TrainTokenizerOptions) -> tokenizers.Tokenizer:
    """Train and save the tokenizer that ``options`` describe.

    Raises ConfigError for a vocabulary that cannot hold the bytes, and DataError for text that cannot be read.
    """
    _check(options)
    files = find_inputs(options.input, JSON_SUFFIXES + TEXT_SUFFIXES)
    start = time.monotonic()
    tokenizer = _untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in options.special_tokens],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(files, options.json_keys), trainer)
    if tokenizer.get_vocab_size() < options.vocab_size:
        logger.warning(
            "the text has no more pairs that occur %d times: the tokenizer has %d tokens instead of %d",
            options.min_frequency, tokenizer.get_vocab_size(), options.vocab_size,
        )
    _save(tokenizer, options)
    echo(f"{options.output_dir}/tokenizer.json: {tokenizer.get_vocab_size()} tokens, in {time.monotonic() - start:.1f} s")
    return tokenizer


def _check(options: TrainTokenizerOptions) -> None:
    smallest = NUM_BYTES + len(options.special_tokens)
    if options.vocab_size < smallest:
        raise ConfigError(
            f"--vocab-size must be at least {smallest}: {NUM_BYTES} bytes and {len(options.special_tokens)} special tokens; "
            f"given {options.vocab_size}."
        )
    if not options.special_tokens:
        raise ConfigError("--special-tokens must name at least the token that ends documents; none was given.")


def _untrained() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # splits by GPT-2's regular expression
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _texts(files: Sequence[Path], keys: Sequence[str]) -> Iterator[str]:
    """All texts of ``files``, with a line of progress every second."""
    total_bytes = sum(path.stat().st_size for path in files)
    last_time = time.monotonic()
    num_characters = 0
    for block in read_blocks(files):
        for text in _block_texts(block, keys):
            num_characters += len(text)
            yield text
        if time.monotonic() - last_time >= 1.0:
            last_time = time.monotonic()
            progress(f"read {block.position / 1e6:.1f} of {total_bytes / 1e6:.1f} MB")
    if not num_characters:
        raise DataError(f"--input must hold text to train on; {', '.join(map(str, files))} hold none.")
    progress(f"read {num_characters:,} characters; merging pairs")


def _block_texts(block: Block, keys: Sequence[str]) -> Iterator[str]:
    if not block.path.endswith(JSON_SUFFIXES):
        try:
            yield block.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = block.first_line + block.data.count(b"\n", 0, error.start)
            raise DataError(f"{block.path}:{line}: text must be UTF-8; byte 0x{block.data[error.start]:02x} is not.") from None
        return
    for record in parse_records(block, keys):
        if isinstance(record, InvalidRecord):
            raise DataError(f"{record.located(block)}. Each line must be one JSON object that holds the text: mend the line.")
        for texts in record.texts:
            yield from texts


def _save(tokenizer: tokenizers.Tokenizer, options: TrainTokenizerOptions) -> None:
    directory = Path(options.output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    eod = options.special_tokens[0]
    # What transformers' AutoTokenizer reads; the length is its word for "without limit".
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": eod,
        "eos_token": eod,
        "unk_token": eod,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),
    }
    _publish(directory / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
    _publish(directory / "tokenizer.json", tokenizer.to_str(pretty=True) + "\n")


def _publish(path: Path, content: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(content, encoding="utf-8")
    os.replace(partial, path)
