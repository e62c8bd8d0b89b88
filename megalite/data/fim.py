"""Filling in the middle: documents rearranged so that a model learns to write what stands between two given texts.

A piece of text is cut at two places into prefix, middle and suffix, and becomes, with a token before each of the three,
prefix, suffix, middle (PSM) or suffix, prefix, middle (SPM). The cuts lie between characters, not between tokens, and
the three are tokenized anew: Bavarian et al., "Efficient training of language models to fill in the middle" (2022),
sections 3 and 3.1; SPM in the variant of its appendix D, which lets prefix and middle stand together.
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol, Sequence

import numpy as np

_TWO_64 = 1 << 64
_UNDECODABLE = "\ufffd"


class Codec(Protocol):
    """As much of a tokenizer as is needed here."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class Draws:
    """Random numbers that are a function of a key and the number of a sample: words of Philox4x64-10."""

    def __init__(self, key: str, sample: int):
        words = np.frombuffer(hashlib.sha256(key.encode()).digest()[:16], "<u8")
        self._words = np.random.Philox(key=words, counter=[0, sample, 0, 0])

    def happens(self, probability: float) -> bool:
        """True with the given probability."""
        return self._word() < probability * _TWO_64

    def below(self, bound: int) -> int:
        """An integer from 0 to ``bound`` - 1; the bias is below ``bound`` / 2^64."""
        return self._word() * bound >> 64

    def _word(self) -> int:
        return int(self._words.random_raw())


@dataclass(frozen=True)
class FimRules:
    """When and how documents are rearranged; the three tokens, the border and the end are ids."""

    rate: float
    spm_rate: float
    prefix: int
    middle: int
    suffix: int
    eod: int | None
    border: int | None = None
    """Between the fragments of a document."""
    fragment_rate: float = 0.0
    no_prefix: str | None = None


def fill_in_the_middle(ids: np.ndarray, rules: FimRules, codec: Codec, draws: Draws) -> np.ndarray:
    """``ids``, int64, with its documents rearranged, cut to the length they had; it may become shorter.

    Documents end at the end-of-document token, which stays where it ends them. What the rearrangement pushes beyond the
    length is lost, as in Megatron-LM.
    """
    pieces = []
    for document, end in _split(ids, rules.eod):
        pieces += [_document(document, rules, codec, draws), end]
    return np.concatenate(pieces)[: len(ids)]


def _split(ids: np.ndarray, mark: int | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """What stands between the marks, each with the mark that ends it; the last one may have none."""
    borders = np.flatnonzero(ids == mark) if mark is not None else np.empty(0, np.int64)
    starts = [0, *(borders + 1)]
    return [(ids[start:end], ids[end : end + 1]) for start, end in zip(starts, [*borders, len(ids)])]


def _document(ids: np.ndarray, rules: FimRules, codec: Codec, draws: Draws) -> np.ndarray:
    """Rearranged as a whole or, if it has fragments, fragment by fragment."""
    fragments = _split(ids, rules.border)
    if not draws.happens(rules.rate):
        return ids
    if len(fragments) == 1:
        return _rearrange(ids, rules, codec, draws)
    pieces = []
    for fragment, border in fragments:
        chosen = draws.happens(rules.fragment_rate)
        pieces += [_rearrange(fragment, rules, codec, draws) if chosen else fragment, border]
    return np.concatenate(pieces)


def _rearrange(ids: np.ndarray, rules: FimRules, codec: Codec, draws: Draws) -> np.ndarray:
    text = codec.decode(ids.tolist())
    # A sample may begin or end within a character: its bytes would not come back as they were.
    if not text or _UNDECODABLE in text or (rules.no_prefix is not None and text.startswith(rules.no_prefix)):
        return ids
    first, second = sorted(draws.below(len(text) + 1) for _ in range(2))
    prefix, middle, suffix = (codec.encode(part) for part in (text[:first], text[first:second], text[second:]))
    if draws.happens(rules.spm_rate):
        return np.array([rules.prefix, rules.suffix, *suffix, rules.middle, *prefix, *middle], np.int64)
    return np.array([rules.prefix, *prefix, rules.suffix, *suffix, rules.middle, *middle], np.int64)
