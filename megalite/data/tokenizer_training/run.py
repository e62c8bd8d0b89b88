"""Training a tokenizer from end to end: options in, a directory out, for ``--tokenizer-model`` and transformers."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal, Sequence

import tokenizers
import tyro

from megalite.data.preprocess.chunks import SUFFIXES, InputFormat, check_keys
from megalite.data.preprocess.inputs import find_inputs
from megalite.data.tokenizer_training.corpus import read_texts
from megalite.data.tokenizer_training.presets import PRESETS, Preset, add_special_tokens, own_tokens
from megalite.data.tokenizer_training.request import Request
from megalite.errors import ConfigError
from megalite.log import echo, logger, setup_logging
from megalite.plugins import load

MODELS = "megalite.data.tokenizer_training.models"


@dataclass(frozen=True, kw_only=True)
class TrainTokenizerOptions:
    """Train a tokenizer and write OUTPUT_DIR/tokenizer.json, for --tokenizer-model and for transformers.

    The same input gives the same tokenizer, whatever the number of cores.
    """

    input: tuple[str, ...]
    """Files, directories, patterns such as 'data/*.jsonl', and - for standard input. .gz and .zst are unpacked."""
    input_format: InputFormat = "auto"
    """jsonl: a JSON object a line. text, text-lines: plain text. parquet: a row is a document. auto: by the name, *.txt
    is text, *.parquet is parquet, all else is jsonl."""
    output_dir: str
    """Directory for tokenizer.json and the files that belong to it."""
    vocab_size: int
    """Number of tokens, with special tokens, the 256 bytes of a byte-level BPE and the sentinels of T5."""
    model_type: str = "bpe"
    """bpe: byte-level BPE. unigram: SentencePiece's Unigram with T5's normalisation. wordpiece: BERT's WordPiece."""
    preset: Literal["gpt2", "roberta", "t5", "bert"] | None = None
    """Special tokens of this model. Default: gpt2 for bpe, t5 for unigram, bert for wordpiece."""
    special_tokens: tuple[str, ...] = ()
    """Special tokens of your own instead of a preset; the first ends documents."""
    json_keys: tuple[str, ...] = ("text",)
    """Keys of the texts in each JSON object, or columns of a Parquet file."""
    min_frequency: int | None = None
    """bpe, wordpiece: how often a pair of tokens must occur to become one. Default: 2."""
    cased: bool = False
    """wordpiece: keep case and accents."""
    character_coverage: float | None = None
    """unigram: share of the text's characters that get a token; the rest is unknown. Default: 0.9995."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Body of ``tools/train_tokenizer.py``."""
    setup_logging()
    train_tokenizer(tyro.cli(TrainTokenizerOptions, args=arguments, config=(tyro.conf.FlagCreatePairsOff,)))


def train_tokenizer(options: TrainTokenizerOptions) -> tokenizers.Tokenizer:
    """Train and save the tokenizer that ``options`` describe.

    Raises ConfigError for flags that do not fit together and for a vocabulary that is too small, and DataError for text
    that cannot be read; nothing is written then.
    """
    model = load(MODELS, options.model_type, "--model-type")
    preset = _preset(options, model)
    _check(options, model, len(preset.tokens) + preset.num_sentinels)
    files = find_inputs(options.input, SUFFIXES[options.input_format])
    check_keys(files, options.input_format, options.json_keys)
    request = Request(
        num_tokens=options.vocab_size - preset.num_sentinels,
        special_tokens=preset.tokens,
        unknown=preset.unknown,
        min_frequency=options.min_frequency,
        cased=options.cased,
        character_coverage=options.character_coverage,
    )
    start = time.monotonic()
    tokenizer = model.train(read_texts(files, options.input_format, options.json_keys), request)
    add_special_tokens(tokenizer, preset)
    size = tokenizer.get_vocab_size()
    if size < options.vocab_size:
        logger.warning("the text yields no more: the tokenizer has %d tokens instead of %d", size, options.vocab_size)
    _save(tokenizer, preset, options)
    echo(f"{options.output_dir}/tokenizer.json: {size} tokens, in {time.monotonic() - start:.1f} s")
    return tokenizer


def _preset(options: TrainTokenizerOptions, model: ModuleType) -> Preset:
    if not options.special_tokens:
        return PRESETS[options.preset or model.DEFAULT_PRESET]
    if options.preset is not None:
        raise ConfigError(
            f"special tokens come from --preset or from --special-tokens; given {options.preset} and "
            f"{' '.join(options.special_tokens)}: keep one."
        )
    if len(set(options.special_tokens)) < len(options.special_tokens):
        raise ConfigError(f"--special-tokens must differ from one another; given {' '.join(options.special_tokens)}.")
    return own_tokens(options.special_tokens)


def _check(options: TrainTokenizerOptions, model: ModuleType, num_special: int) -> None:
    for name in ("min_frequency", "cased", "character_coverage"):
        if getattr(options, name) and name not in model.OPTIONS:
            raise ConfigError(
                f"--{name.replace('_', '-')} has no effect with --model-type {options.model_type}: leave it out."
            )
    if options.vocab_size <= num_special:
        raise ConfigError(
            f"--vocab-size must leave room beside the {num_special} special tokens; given {options.vocab_size}."
        )
    if options.min_frequency is not None and options.min_frequency < 1:
        raise ConfigError(f"--min-frequency must be at least 1; given {options.min_frequency}.")
    if options.character_coverage is not None and not 0.9 <= options.character_coverage <= 1:
        raise ConfigError(f"--character-coverage must be 0.9 to 1; given {options.character_coverage}.")


def _save(tokenizer: tokenizers.Tokenizer, preset: Preset, options: TrainTokenizerOptions) -> None:
    directory = Path(options.output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    special_tokens = dict(preset.roles)
    if preset.sentinels:
        special_tokens["additional_special_tokens"] = preset.sentinels[::-1]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special_tokens,
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),  # transformers' word for "without limit"
    }
    if options.model_type == "bpe":
        config["add_prefix_space"] = False
    if options.model_type == "wordpiece":
        vocab = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
        _publish(directory / "vocab.txt", "".join(token + "\n" for token in vocab))
    _publish(directory / "tokenizer_config.json", _as_json(config))
    _publish(directory / "special_tokens_map.json", _as_json(special_tokens))
    _publish(directory / "tokenizer.json", tokenizer.to_str(pretty=True) + "\n")


def _as_json(content: dict[str, object]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _publish(path: Path, content: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(content, encoding="utf-8")
    os.replace(partial, path)
