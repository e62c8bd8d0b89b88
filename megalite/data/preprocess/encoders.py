"""From texts to arrays of ids: by the tokenizer itself, or by `gigatoken`, which is many times as fast.

gigatoken encodes byte-level BPE and SentencePiece's BPE with byte fallback (:mod:`megalite.data.preprocess.stand_in`).
It is trusted only after it has given the tokenizer's own ids for the corpus's own first documents and for
:data:`PROBES`, texts on which encoders are known to differ.
"""

import importlib.util
from dataclasses import dataclass
from typing import Literal, Protocol, Sequence

import numpy as np

from megalite.data.preprocess.ragged import Ragged, from_lists, join, merge_rows, surround
from megalite.data.preprocess.segments import segment_rule, segments
from megalite.data.preprocess.stand_in import added_around, inner_ids, stand_in
from megalite.data.tokenizers import Tokenizer
from megalite.data.tokenizers._rust import RustTokenizer
from megalite.errors import TokenizerError

Backend = Literal["auto", "gigatoken", "tokenizers"]

PROBES = (
    "",
    " ",
    "  a  b   ",
    "\n\n a\r\n\r\nb \t\tc\n",
    "I'll we've DON'T it's I’M",
    "1234567 3.14 ٣٤ ½²",
    "a.b,c;--!!! ...x",
    "نَصٌّ عربي",
    "中文 字。日本語のテキスト",
    "한국어 \u1112\u1161\u11ab",
    "नमस्ते क्षत्रिय",
    "👩‍👩‍👧🏽 🇩🇪",
    "e\u0301 \u00e9 \ufb01 \u212b",
    "\u2028a\u2029b\u0085c\x0b\x0cd",
    "\x00a\x00",
    "\ufeffa\u200bb\u00a0c\u3000d",
    "x" * 300,
    "\U00010348\U000e0041\ufffd",
)
_BATCH_CHARACTERS = 1 << 18  # the library is as fast with more, but holds a hundred bytes for each until they are done


class Encoder(Protocol):
    """Encodes texts; equal encoders of one tokenizer differ only in speed."""

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """Ids of each text, int32 or uint32. Raises TokenizerError when one has no encoding."""
        ...


class PlainEncoder:
    """Any tokenizer, by its own ``encode_batch``; long texts in segments where that provably changes nothing."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._rule = segment_rule(tokenizer) if isinstance(tokenizer, RustTokenizer) else None
        self._prefix, self._suffix = added_around(tokenizer) if self._rule else ((), ())

    def __call__(self, texts: Sequence[str]) -> Ragged:
        return join([self._batch(batch) for batch in batches(texts, _BATCH_CHARACTERS)])

    def _batch(self, texts: Sequence[str]) -> Ragged:
        if self._rule is None or len(texts) > 1 or len(texts[0]) <= _BATCH_CHARACTERS:
            return from_lists(self._tokenizer.encode_batch(texts))
        pieces = list(segments(texts[0], self._rule, _BATCH_CHARACTERS))
        rows = join([from_lists(inner_ids(self._tokenizer, [piece])) for piece in pieces])
        return surround(merge_rows(rows, [len(pieces)]), self._prefix, self._suffix)


def batches(texts: Sequence[str], num_characters: int) -> list[Sequence[str]]:
    """``texts`` in runs of at most ``num_characters``; a longer text is a run of its own."""
    runs, start, size = [], 0, 0
    for number, text in enumerate(texts):
        if size and size + len(text) > num_characters:
            runs.append(texts[start:number])
            start, size = number, 0
        size += len(text)
    if start < len(texts):
        runs.append(texts[start:])
    return runs


class GigatokenEncoder:
    """A tokenizer as gigatoken encodes it, on the calling thread.

    Raises ImportError where the package is missing, and whatever it raises for a tokenizer that it does not know.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._stand_in = stand_in(tokenizer)

    @property
    def special_texts(self) -> Sequence[str]:
        """Texts of the tokenizer's special tokens, which a document may quote."""
        return self._stand_in.special_texts

    def __call__(self, texts: Sequence[str]) -> Ragged:
        if not texts:
            return from_lists([])
        layout = self._stand_in.backend.encode_batch(list(texts), parallel=False).layout
        offsets = np.asarray(layout.offsets)
        values = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
        return surround(Ragged(values, np.diff(offsets)), self._stand_in.prefix, self._stand_in.suffix)


@dataclass(frozen=True)
class Choice:
    """Which backend encodes, and the reason, for the log."""

    backend: Literal["gigatoken", "tokenizers"]
    reason: str


def choose_backend(wanted: Backend, tokenizer: Tokenizer, first_texts: Sequence[str]) -> Choice:
    """gigatoken where it is installed and equal on ``first_texts`` and :data:`PROBES`; else the tokenizer itself.

    Raises TokenizerError when ``wanted`` is "gigatoken" and it cannot be used.
    """
    if wanted == "tokenizers":
        return Choice("tokenizers", "--tokenizer-backend asks for it")
    obstacle = _obstacle(tokenizer, first_texts)
    if obstacle is None:
        return Choice(
            "gigatoken", f"its ids are equal on the first {len(first_texts):,} texts and {len(PROBES)} probes"
        )
    if wanted == "gigatoken":
        raise TokenizerError(
            f"--tokenizer-backend gigatoken needs a tokenizer that gigatoken encodes alike; with {tokenizer.name}: "
            f"{obstacle}. Leave the flag out to use the tokenizer's own library."
        )
    return Choice("tokenizers", obstacle)


def _obstacle(tokenizer: Tokenizer, first_texts: Sequence[str]) -> str | None:
    """Why gigatoken cannot stand in for ``tokenizer``, or None."""
    if importlib.util.find_spec("gigatoken") is None:
        return "gigatoken is not installed (pip install megalite[fast])"
    try:
        encoder = GigatokenEncoder(tokenizer)
    except Exception as error:  # gigatoken raises RuntimeError of several lines; the first tells
        return f"gigatoken refuses this tokenizer: {str(error).strip().splitlines()[0]}"
    quoted = [
        form.format(token) for token in encoder.special_texts for form in ("{0}", "a{0}b", " {0} {0}\n", "x {0}{0} y")
    ]
    return _first_difference(encoder, tokenizer, [*PROBES, *quoted, *first_texts])


def _first_difference(encoder: Encoder, tokenizer: Tokenizer, texts: Sequence[str]) -> str | None:
    try:
        got = encoder(texts)
    except Exception as error:
        return f"gigatoken fails on a text: {str(error).strip().splitlines()[0]}"
    rows = np.split(got.values, got.ends[:-1])
    for text, ids, row in zip(texts, tokenizer.encode_batch(texts), rows, strict=True):
        if not np.array_equal(ids, row):
            return f"gigatoken's ids differ on the text {text[:60]!r}{'...' if len(text) > 60 else ''}"
    return None


def build_encoder(backend: Literal["gigatoken", "tokenizers"], tokenizer: Tokenizer) -> Encoder:
    """The encoder of a choice already made."""
    return GigatokenEncoder(tokenizer) if backend == "gigatoken" else PlainEncoder(tokenizer)
