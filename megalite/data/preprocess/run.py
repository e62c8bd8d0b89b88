"""Preprocessing from end to end: options in, corpora and a summary out."""

import signal
import sys
from contextlib import ExitStack, closing
from typing import Sequence

from megalite.data.indexed import optimal_dtype
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.preprocess.encode import EncodeSettings
from megalite.data.preprocess.inputs import find_inputs, read_blocks
from megalite.data.preprocess.options import PreprocessOptions, parse_options
from megalite.data.preprocess.pool import encode_in_order
from megalite.data.preprocess.summary import ColumnSummary, Progress, Summary
from megalite.data.sidecar import Sidecar
from megalite.data.tokenizers import Tokenizer, build_tokenizer
from megalite.errors import ConfigError, DataError, TokenizerError
from megalite.log import echo, logger, setup_logging


def main(arguments: Sequence[str] | None = None) -> None:
    """Body of ``tools/preprocess_data.py``."""
    setup_logging()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C does, so that unfinished files are removed
    preprocess(parse_options(sys.argv[1:] if arguments is None else arguments))


def output_prefix(options: PreprocessOptions, key: str) -> str:
    """Prefix of the corpus of a JSON key, as Megatron-LM names it."""
    return f"{options.output_prefix}_{key}_document"


def preprocess(options: PreprocessOptions) -> Summary:
    """Write the corpora that ``options`` ask for. They appear at the very end, whole, or not at all.

    Raises a MegaliteError for an unusable flag, tokenizer or input, and for a corpus without a single token.
    """
    _check_options(options)
    tokenizer = build_tokenizer(options.tokenizer)
    if options.append_eod:
        _check_eod(tokenizer)
    files = find_inputs(options.input)
    summary = Summary({key: ColumnSummary() for key in options.json_keys})
    progress = Progress(options.log_interval, sum(path.stat().st_size for path in files))
    settings = EncodeSettings(options.tokenizer, options.json_keys, options.append_eod, options.skip_invalid)
    with ExitStack() as stack:
        dtype = optimal_dtype(tokenizer.vocab_size)
        builders = [stack.enter_context(IndexedDatasetBuilder(output_prefix(options, key), dtype)) for key in options.json_keys]
        for block in stack.enter_context(closing(encode_in_order(settings, read_blocks(files), options.workers))):
            for builder, column in zip(builders, block.columns, strict=True):
                builder.add_documents(column.tokens, column.sequence_lengths, column.document_sequences)
            summary.add(block)
            progress.update(summary, block.position)
        _check_not_empty(options, summary)
        for key, builder in zip(options.json_keys, builders, strict=True):
            builder.finalize(_sidecar(options, tokenizer, summary, key))
    summary.seconds = progress.seconds
    _report(options, summary, dtype.name)
    return summary


def _check_options(options: PreprocessOptions) -> None:
    if options.workers < 1:
        raise ConfigError(f"--workers must be at least 1; given {options.workers}.")
    if options.log_interval < 1:
        raise ConfigError(f"--log-interval must be at least 1; given {options.log_interval}.")
    if not options.json_keys or len(set(options.json_keys)) < len(options.json_keys):
        raise ConfigError(f"--json-keys must be different keys, at least one; given {' '.join(options.json_keys)!r}.")


def _check_eod(tokenizer: Tokenizer) -> None:
    if tokenizer.eod is None:
        raise TokenizerError(
            f"--append-eod needs a tokenizer with an end-of-document token; {tokenizer.name} declares none: name it with "
            "--eod-token, declare eos_token in tokenizer_config.json, or leave --append-eod out."
        )
    if tokenizer.name != "NullTokenizer" and tokenizer.encode("a")[-1:] == [tokenizer.eod]:
        logger.warning(
            "the tokenizer itself ends each text with its end-of-document token %d, and --append-eod adds a second one: "
            "leave it out, or pass --tokenizer-hf-no-include-special-tokens", tokenizer.eod,
        )


def _check_not_empty(options: PreprocessOptions, summary: Summary) -> None:
    for key, column in summary.columns.items():
        if not column.tokens:
            skipped = "".join(f"; {line}" for line in summary.skipped_text())
            raise DataError(
                f"the corpus of {key!r} must hold at least one token; {' '.join(options.input)} gave {column.documents} "
                f"documents, {column.empty} of them empty{skipped}. Nothing was written."
            )


def _sidecar(options: PreprocessOptions, tokenizer: Tokenizer, summary: Summary, key: str) -> Sidecar:
    return Sidecar(
        tokenizer=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        eod=tokenizer.eod,
        append_eod=options.append_eod,
        summary=summary.as_json(key),
    )


def _report(options: PreprocessOptions, summary: Summary, dtype: str) -> None:
    for key, column in summary.columns.items():
        echo(f"{output_prefix(options, key)}.bin/.idx ({dtype}): {column.text()}")
    for line in summary.skipped_text():
        logger.warning("%s", line)
    echo(f"{summary.seconds:.1f} s with {options.workers} workers: {summary.rates(summary.seconds)}")
