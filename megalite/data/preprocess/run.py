"""Preprocessing from end to end: options in, corpora and a summary out."""

import dataclasses
import json
import signal
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Iterator, Sequence

from megalite.data.indexed import optimal_dtype
from megalite.data.preprocess.chunks import SUFFIXES, Chunk, check_keys, chunks
from megalite.data.preprocess.encode import EncodedChunk, EncodeSettings, first_texts
from megalite.data.preprocess.encoders import choose_backend
from megalite.data.preprocess.inputs import find_inputs
from megalite.data.preprocess.options import PreprocessOptions, check_options, parse_options
from megalite.data.preprocess.output import Output
from megalite.data.preprocess.pool import Workers
from megalite.data.preprocess.resume import Records, describe_task
from megalite.data.preprocess.streams import stored_bytes
from megalite.data.preprocess.summary import Progress, Summary
from megalite.data.sidecar import Sidecar
from megalite.data.tokenizers import Tokenizer, build_tokenizer
from megalite.errors import DataError, TokenizerError
from megalite.log import echo, logger, setup_logging


def main(arguments: Sequence[str] | None = None) -> None:
    """Body of ``tools/preprocess_data.py``."""
    setup_logging()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C does, so that nothing is left half done
    preprocess(parse_options(sys.argv[1:] if arguments is None else arguments))


def output_prefix(options: PreprocessOptions, key: str) -> str:
    """Prefix of the corpus of a JSON key, as Megatron-LM names it."""
    return f"{options.output_prefix}_{key}_{'sentence' if options.split_sentences else 'document'}"


def preprocess(options: PreprocessOptions) -> Summary:
    """Write the corpora that ``options`` ask for. They appear at the very end, whole, or not at all.

    Raises a MegaliteError for an unusable flag, tokenizer or input, and for a corpus without a single token.
    """
    check_options(options)
    tokenizer = build_tokenizer(options.tokenizer)
    if options.append_eod:
        _check_eod(tokenizer)
    files = find_inputs(options.input, SUFFIXES[options.input_format])
    check_keys(files, options.input_format, options.json_keys)
    records = Records(options.output_prefix, describe_task(_deciding_flags(options), tokenizer.fingerprint, files))
    prefixes = {key: output_prefix(options, key) for key in options.json_keys}
    digests = f"{options.output_prefix}.digests.partial" if options.dedup else None
    dtype = optimal_dtype(tokenizer.vocab_size)
    with Output(prefixes, dtype, records, digests) as output:
        _encode_all(options, tokenizer, files, output)
        _check_not_empty(options, output.summary)
        output.finalize(lambda key: _sidecar(options, tokenizer, output.summary, key))
    _report(options, output.summary, dtype.name)
    return output.summary


def _encode_all(options: PreprocessOptions, tokenizer: Tokenizer, files: list[Path], output: Output) -> None:
    progress = Progress(options.log_interval, sum(map(stored_bytes, files)), output.summary.seconds)
    work = chunks(files, options.input_format, options.json_keys)
    with Workers(options.workers) as workers:  # they start while the backend is chosen
        settings, work = _settings(options, tokenizer, work)
        if output.continues:
            logger.info("continuing an interrupted run after %d documents", output.summary.documents)
        for chunk in workers.encode(settings, islice(work, output.chunks, None)):
            output.number_lines(chunk)
            if not options.skip_invalid:
                _check_valid(chunk)
            output.write(chunk, progress.seconds)
            progress.update(output.summary, chunk.position)
    output.summary.seconds = progress.seconds


def _settings(
    options: PreprocessOptions, tokenizer: Tokenizer, work: Iterator[Chunk]
) -> tuple[EncodeSettings, Iterator[Chunk]]:
    """What workers must know, the backend included, for which the first chunk is looked at; and all chunks again."""
    first = list(islice(work, 1))
    choice = choose_backend(options.tokenizer_backend, tokenizer, first_texts(first, options.json_keys))
    logger.info("encoding with %s: %s", choice.backend, choice.reason)
    sentences = "split with line breaks" if options.keep_newlines else "split"
    settings = EncodeSettings(
        options.tokenizer,
        options.json_keys,
        options.append_eod,
        options.skip_invalid,
        choice.backend,
        sentences if options.split_sentences else "whole",
        options.dedup,
    )
    return settings, chain(first, work)


def _deciding_flags(options: PreprocessOptions) -> dict[str, object]:
    """The flags that the corpora depend on."""
    indifferent = ("workers", "log_interval", "tokenizer_backend", "summary_json", "input", "tokenizer")
    return {name: value for name, value in dataclasses.asdict(options).items() if name not in indifferent}


def _check_eod(tokenizer: Tokenizer) -> None:
    if tokenizer.eod is None:
        raise TokenizerError(
            f"--append-eod needs a tokenizer with an end-of-document token; {tokenizer.name} declares none: name it "
            "with --eod-token, declare eos_token in tokenizer_config.json, or leave --append-eod out."
        )
    if tokenizer.name != "NullTokenizer" and tokenizer.encode("a")[-1:] == [tokenizer.eod]:
        logger.warning(
            "the tokenizer itself ends each text with its end-of-document token %d, and --append-eod adds a second "
            "one: leave it out, or pass --tokenizer-hf-no-include-special-tokens",
            tokenizer.eod,
        )


def _check_valid(chunk: EncodedChunk) -> None:
    for reason, fault in chunk.skipped.items():
        raise DataError(
            f"{fault.path}:{fault.line}: {reason}: {fault.detail}. Each line must be one JSON object that holds the "
            "text (or plain text, or a row): mend it, or pass --skip-invalid to leave such lines out and count them."
        )


def _check_not_empty(options: PreprocessOptions, summary: Summary) -> None:
    for key, column in summary.columns.items():
        if not column.tokens:
            skipped = "".join(f"; {line}" for line in summary.skipped_text())
            raise DataError(
                f"the corpus of {key!r} must hold at least one token; {' '.join(options.input)} gave "
                f"{column.documents} documents, {column.empty} of them empty{skipped}. Nothing was written."
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
    if options.summary_json is not None:
        Path(options.summary_json).write_text(json.dumps(summary.report(), indent=1) + "\n", encoding="utf-8")
