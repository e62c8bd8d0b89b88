"""Sentences of a text by a few rules, for `--split-sentences`. No model, no language, nothing to download.

A sentence ends

1. at an empty line, always: headings and paragraphs end without a full stop;
2. behind ``. ! ? …`` and any quotes and brackets that close there, if white space follows and the next word does not
   begin with a small letter; but not behind
   - an abbreviation (of :data:`ABBREVIATIONS`: ``Dr. Smith``; with a number, of :data:`BEFORE_NUMBERS`: ``Fig. 3``),
   - a single capital letter (the initial of a name: ``J. Smith``), nor letters with full stops between (``U.S.``),
   - a number at the beginning of a line (of an enumeration: ``1. First``);
3. behind ``。 ！ ？ ।`` (Chinese, Japanese, Devanagari) and any quotes and brackets that close there, with or without
   white space.

White space between sentences is dropped, or with ``keep_breaks`` stays at the end of the sentence if it holds a line
break.
A text of white space alone has no sentence.
"""

import re
from typing import Iterator

ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st sr jr rev gen col lt sgt capt sen rep gov pres messrs mt ft ed eds ca cf vs viz e.g i.e "
    "approx dept jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
BEFORE_NUMBERS = frozenset("no nos vol vols fig figs eq eqs sec ch p pp art".split())

_CLOSING = r"""["'”’»)\]」』】）]*"""
# Each alternative begins where no earlier one can have begun, so that a run of marks or spaces costs linear time.
_BORDER = re.compile(
    rf"(?P<paragraph>\n[^\S\n]*\n\s*)|[。！？।]+{_CLOSING}\s*|(?P<stop>(?<![.!?…])[.!?…]+{_CLOSING})(?P<gap>\s+)"
)
_EMPTY_LINE = re.compile(r"\n[^\S\n]*\n")
_LAST_WORD = re.compile(r"(?:^|[\s(\[\"'“‘«])([^\s(\[\"'“‘«]*)\Z")
_NUMBERED_LINE = re.compile(r"(?:\A|\n)[^\S\n]*\d+\Z")
_INITIALS = re.compile(r"[^\W\d_](\.[^\W\d_])*")
_LONGEST_WORD = 24


def split_sentences(text: str, keep_breaks: bool = False) -> list[str]:
    """The sentences of ``text``, in order. Nothing but white space between them is lost."""
    sentences = []
    start = 0
    for stop in _ends(text):
        sentence = text[start:stop]
        start = stop
        kept = _without_gap(sentence, keep_breaks)
        if kept:
            sentences.append(kept)
    return sentences


def _without_gap(sentence: str, keep_breaks: bool) -> str:
    body = sentence.strip()
    if not body:
        return ""
    gap = sentence[len(sentence.rstrip()) :]
    return body + gap if keep_breaks and "\n" in gap else body


def _ends(text: str) -> Iterator[int]:
    """Where each sentence and the white space behind it end."""
    for border in _BORDER.finditer(text):
        if border["stop"] is None or _is_end(text, border):
            yield border.end()
    yield len(text)


def _is_end(text: str, border: re.Match[str]) -> bool:
    """Whether the marks in front of white space end a sentence; a lone full stop may belong to the word before it."""
    if _EMPTY_LINE.search(border["gap"]):
        return True
    following = text[border.end() : border.end() + 1]
    if following.islower():
        return False
    return border["stop"] != "." or not _is_abbreviation(text, border.start(), following)


def _is_abbreviation(text: str, stop: int, following: str) -> bool:
    """Whether the full stop at ``stop``, with ``following`` behind it, belongs to the word before it."""
    before = text[max(0, stop - _LONGEST_WORD) : stop]
    found = _LAST_WORD.search(before)
    word = found[1] if found else ""
    if word.isdigit():
        return _NUMBERED_LINE.search(before) is not None
    if word.lower() in BEFORE_NUMBERS:
        return following.isdigit()
    is_initial = _INITIALS.fullmatch(word) is not None and (word.isupper() or "." in word)
    return is_initial or word.lower() in ABBREVIATIONS
