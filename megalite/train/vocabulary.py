"""The vocabulary of a run: from the tokenizer flags, or from what is recorded beside the data."""

from dataclasses import dataclass

from megalite.config import Config
from megalite.data.indexed import open_index
from megalite.data.sidecar import read_sidecar
from megalite.data.sources import find_sources
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import ConfigError


@dataclass(frozen=True)
class Vocabulary:
    """What training must know of a tokenizer."""

    vocab_size: int
    eod: int | None
    fingerprint: str


def find_vocabulary(config: Config) -> Vocabulary:
    """The vocabulary that the flags or the data name.

    Raises :class:`ConfigError` if neither does, or if ``--vocab-size`` is smaller than the tokenizer's; DataError for
    data that are missing, and TokenizerError for a tokenizer that is missing or damaged.
    """
    found = _from_flags(config) or _from_data(config)
    given = config.model.vocab_size
    if found is None:
        raise ConfigError(
            "the vocabulary must be known; there is no --tokenizer-type, and nothing is recorded beside the data: give "
            "--tokenizer-type and its files, or --tokenizer-type NullTokenizer --vocab-size N for plain ids."
        )
    if given is not None and given < found.vocab_size and config.data.tokenizer_type != "NullTokenizer":
        raise ConfigError(
            f"vocab_size ({given}) must be at least the tokenizer's ({found.vocab_size}): leave --vocab-size out to "
            "use that."
        )
    return found


def with_vocabulary(config: Config, vocabulary: Vocabulary) -> Config:
    """``config`` for a model over ``vocabulary``: a larger ``--vocab-size`` leaves ids unused."""
    return config.replace(vocab_size=max(vocabulary.vocab_size, config.model.vocab_size or 0))


def without_vocabulary(config: Config) -> Config:
    """The inverse: a configuration that means the same when it is read again.

    NullTokenizer adds its end-of-document token to ``--vocab-size``; other tokenizers leave the flag as it is.
    """
    if config.data.tokenizer_type != "NullTokenizer":
        return config
    return config.replace(vocab_size=config.model.vocab_size - 1)


def _from_flags(config: Config) -> Vocabulary | None:
    if config.data.tokenizer_type is None:
        return None
    tokenizer = build_tokenizer(TokenizerOptions.from_config(config.data, config.model.vocab_size))
    return Vocabulary(tokenizer.vocab_size, tokenizer.eod, tokenizer.fingerprint)


def _from_data(config: Config) -> Vocabulary | None:
    sources = find_sources(config.data)
    for blend in (sources.train, sources.valid, sources.test):
        for prefix in blend.prefixes if blend is not None else ():
            sidecar = read_sidecar(prefix)
            if sidecar is not None:
                return Vocabulary(sidecar.vocab_size, sidecar.eod, sidecar.tokenizer)
            open_index(prefix)  # Of a name that is wrong it is to be said that there is no such corpus.
    return None
