"""Where a long text may be cut so that its pieces encode to the ids of the whole.

The `tokenizers` library holds about a hundred bytes for each byte of a text until the text is done, so a document of
50 MB would take gigabytes. Tokenizers of the kinds below split a text into words first, by rules in which a word never
continues from a character that is no white space to a following space, and in which what follows such a place is split
without looking back. A cut there separates two words. No other kind of tokenizer is cut.
"""

import json
import re
from typing import Iterator

from megalite.data.tokenizers._rust import RustTokenizer

# Python's \S is a subset of the character class of the same name in the tokenizers' regular expressions.
_BEFORE_SPACE = r"(?<=\S)(?= )"
_BEFORE_ANY_SPACE = re.compile(r"(?<=\S)(?=[ \n])")
# In these expressions a line break may belong to the punctuation before it, so one is cut from letters and digits only.
_BEFORE_SPACE_OR_LINE = re.compile(_BEFORE_SPACE + r"|(?<=[A-Za-z0-9])(?=\n)")

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLIT_PATTERNS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": _BEFORE_ANY_SPACE,  # GPT-2
    _CONTRACTIONS + _LETTERS + r"|\p{N}{1,3}" + _REST: _BEFORE_SPACE_OR_LINE,  # cl100k, Llama 3
    _CONTRACTIONS + _LETTERS + r"|\p{N}" + _REST: _BEFORE_SPACE_OR_LINE,  # Qwen 2
}
_NORMALIZERS = (None, "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "BertNormalizer")
"""A space stands alone in all of them."""
_WORD_MODELS = ("BPE", "WordPiece")


def segment_rule(tokenizer: RustTokenizer) -> re.Pattern[str] | None:
    """A pattern that matches, without consuming anything, where ``tokenizer`` may be given the halves of a text instead
    of the text; None where no such place is known.
    """
    description = json.loads(tokenizer.backend.to_str())
    normalizer = description["normalizer"]
    if description["model"]["type"] not in _WORD_MODELS or (normalizer or {}).get("type") not in _NORMALIZERS:
        return None
    if description["model"]["type"] == "WordPiece" and tokenizer.token_id(description["model"]["unk_token"]) is None:
        return None  # some texts have no encoding
    for token in description["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or re.search(r"\s", token["content"]):
            return None
    return _word_rule(description["pre_tokenizer"])


def _word_rule(pre_tokenizer: dict | None) -> re.Pattern[str] | None:
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True} | {"type": "BertPreTokenizer"}:
            return _BEFORE_ANY_SPACE
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return _SPLIT_PATTERNS.get(pattern)
    return None


def segments(text: str, rule: re.Pattern[str], num_characters: int) -> Iterator[str]:
    """``text`` in pieces that end where ``rule`` allows it, of at most ``num_characters`` where it allows that."""
    start = 0
    while len(text) - start > num_characters:
        cut = _last_cut(text, rule, start, start + num_characters)
        if cut is None:
            found = rule.search(text, start + num_characters)
            cut = found.start() if found else len(text)
        yield text[start:cut]
        start = cut
    if start < len(text):
        yield text[start:]


def _last_cut(text: str, rule: re.Pattern[str], start: int, stop: int) -> int | None:
    """The last cut in (start, stop], looked for in windows that grow, for one is usually near."""
    width = 64
    while True:
        low = max(start + 1, stop - width)
        cuts = [found.start() for found in rule.finditer(text, low, stop + 1)]
        if cuts:
            return cuts[-1]
        if low == start + 1:
            return None
        width *= 16
