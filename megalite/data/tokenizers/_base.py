"""What every tokenizer offers, and the flags that describe one."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Sequence

from megalite.config import DataConfig
from megalite.errors import TokenizerError


class Tokenizer(Protocol):
    """Text to token ids and back.

    ``vocab_size`` is the largest id + 1, added tokens included. ``eod`` is the id of the end-of-document token, if the
    tokenizer has one. ``fingerprint`` is a SHA-256 of the mapping itself, the same wherever its files lie and however
    they are formatted; data records it, so that training with another tokenizer can be refused.
    """

    name: str
    vocab_size: int
    eod: int | None
    fingerprint: str

    def encode(self, text: str) -> list[int]:
        """Ids of one text. Raises TokenizerError when the text cannot be encoded."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, equal to :meth:`encode` of each."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included."""
        ...


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """tokenizer: how text becomes tokens"""

    tokenizer_type: str | None = None
    """HuggingFaceTokenizer: a tokenizer.json (--tokenizer-model). GPT2BPETokenizer: --vocab-file and --merge-file.
    NullTokenizer: the text is integers (--vocab-size)."""
    tokenizer_model: str | None = None
    """A tokenizer.json, or the directory that holds it."""
    vocab_file: str | None = None
    """vocab.json of a GPT-2 tokenizer."""
    merge_file: str | None = None
    """merges.txt of a GPT-2 tokenizer."""
    vocab_size: int | None = None
    """Number of tokens of a NullTokenizer; its end-of-document token is the next id."""
    eod_token: str | None = None
    """Text of the end-of-document token. Default: what the tokenizer's own files call its end-of-sequence token."""
    tokenizer_hf_no_include_special_tokens: bool = False
    """Leave out the tokens that the tokenizer itself puts around each text, such as <s> or [CLS] and [SEP]."""

    @classmethod
    def from_config(cls, data: DataConfig, vocab_size: int | None) -> "TokenizerOptions":
        """The options of a training run."""
        return cls(
            tokenizer_type=data.tokenizer_type,
            tokenizer_model=data.tokenizer_model,
            vocab_file=data.vocab_file,
            merge_file=data.merge_file,
            vocab_size=vocab_size,
        )


def require_file(path: str | None, flag: str, what: str) -> Path:
    """The path given by ``flag`` if it is a file; TokenizerError otherwise."""
    if path is None:
        raise TokenizerError(f"{flag} must be given: {what}.")
    if not Path(path).is_file():
        raise TokenizerError(f"{flag} must be an existing file ({what}); given {path!r}, which is not one.")
    return Path(path)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; TokenizerError when it does not hold one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path} must be JSON; it is not: {error}.") from None
    if not isinstance(content, dict):
        raise TokenizerError(f"{path} must hold a JSON object; it holds a {type(content).__name__}.")
    return content


def fingerprint(content: Any) -> str:
    """SHA-256 of JSON-like ``content``, whatever the order of its keys and the spacing of the file it came from."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
