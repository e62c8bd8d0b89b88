r"""``--model-type unigram``: SentencePiece's Unigram with T5's normalisation, trained by the `sentencepiece` library.

The normalisation is SentencePiece's rule ``nmt_nfkc``: control characters go, what separates words becomes one space,
all else is NFKC. Its table as such, which `tokenizers` can apply too, is not used: where a ligature or a fraction is
followed by a combining mark the library loses the mark. Rule by rule, nothing is lost; the result differs from the
table's in U+FF5E (here a tilde), in a few characters that Unicode has added or changed since, and where the order of
several combining marks is not the canonical one.
"""

import io
import re
from typing import Any, Iterator

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from megalite.data.tokenizer_training.request import Request
from megalite.data.optional import require_package
from megalite.errors import ConfigError, DataError, MegaliteError, TokenizerError

DEFAULT_PRESET = "t5"
OPTIONS = ("character_coverage",)
_META_PIECES = 3  # the library's own <pad>, </s> and <unk>, which the preset's tokens replace
_SENTENCE_CHARACTERS = 1000  # the library passes over sentences of more than 4192 bytes
_CONTROLS = "[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"
_SPACES = "[\t\n\f\r\u061c\u1680\u200b\u200c\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd]"


def train(texts: Iterator[str], request: Request) -> tokenizers.Tokenizer:
    """Raises ConfigError for special tokens without an unknown one and for a vocabulary smaller than the text's
    alphabet, DataError for text of which nothing can be learnt, and TokenizerError where the library is missing.
    """
    if request.unknown is None:
        raise ConfigError(
            "--model-type unigram needs a token for unknown characters: choose --preset t5, bert or roberta."
        )
    sentencepiece = require_package("sentencepiece", "--model-type unigram", TokenizerError)
    proto = _train(sentencepiece, texts, request)
    return _as_tokenizer(sentencepiece.SentencePieceProcessor(model_proto=proto), request)


def t5_normalizer() -> normalizers.Normalizer:
    """SentencePiece's ``nmt_nfkc``, and its removal of extra white space."""
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(_CONTROLS), ""),
            normalizers.Replace(Regex(_SPACES), " "),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex("^ | $"), ""),
        ]
    )


def sentences(texts: Iterator[str]) -> Iterator[str]:
    """Lines, long ones cut at spaces."""
    for text in texts:
        for line in text.split("\n"):
            while len(line) > _SENTENCE_CHARACTERS:
                cut = line.rfind(" ", 0, _SENTENCE_CHARACTERS) + 1 or _SENTENCE_CHARACTERS
                yield line[:cut]
                line = line[cut:]
            yield line


def _train(sentencepiece: Any, texts: Iterator[str], request: Request) -> bytes:
    model, failures = io.BytesIO(), []
    normalized = map(t5_normalizer().normalize_str, sentences(texts))
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_noting(failures, normalized),
            model_writer=model,
            model_type="unigram",
            vocab_size=request.num_tokens - len(request.special_tokens) + _META_PIECES,
            character_coverage=request.character_coverage or 0.9995,
            normalization_rule_name="identity",
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    except RuntimeError as error:
        if failures:  # raised by the texts, and wrapped by the library
            raise failures[0] from None
        smaller = re.search(r"smaller than required_chars\. (\d+) vs (\d+)", str(error))
        if smaller is None:
            raise DataError(f"--input must hold text that sentencepiece can learn from; it says: {error}.") from None
        surplus = len(request.special_tokens) - _META_PIECES
        raise ConfigError(
            f"--vocab-size must hold every character of the text; given {request.num_tokens} without sentinels, and "
            f"there are {int(smaller[2]) + surplus} with the special tokens: raise it, or lower --character-coverage."
        ) from None
    return model.getvalue()


def _noting(failures: list[MegaliteError], texts: Iterator[str]) -> Iterator[str]:
    try:
        yield from texts
    except MegaliteError as error:
        failures.append(error)
        raise


def _as_tokenizer(processor: Any, request: Request) -> tokenizers.Tokenizer:
    learnt = range(_META_PIECES, processor.get_piece_size())
    pieces = [(token, 0.0) for token in request.special_tokens]
    pieces += [(processor.id_to_piece(number), processor.get_score(number)) for number in learnt]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=request.special_tokens.index(request.unknown)))
    tokenizer.normalizer = t5_normalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer
