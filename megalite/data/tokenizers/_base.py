"""What every tokenizer offers, and the flags that describe one."""

import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Protocol, Sequence

from megalite.config import DataConfig
from megalite.errors import TokenizerError


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids of the tokens that have a role; None for those that the tokenizer has not.

    ``sentinels`` are T5's ``<extra_id_0>``, ``<extra_id_1>`` and so on, which stand for spans of a text.
    """

    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    unk: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    sentinels: tuple[int, ...] = ()


class Tokenizer(Protocol):
    """Text to token ids and back.

    ``vocab_size`` is the largest id + 1, added tokens included. ``eod`` is the id of the end-of-document token, if the
    tokenizer has one, and ``special`` tells the ids of other roles. ``fingerprint`` is a SHA-256 of the mapping itself,
    the same wherever its files lie and however they are formatted; data records it, so that training with another
    tokenizer can be refused.
    """

    name: str
    vocab_size: int
    eod: int | None
    special: SpecialTokens
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
    """HuggingFaceTokenizer, SentencePieceTokenizer (also GPTSentencePieceTokenizer, Llama2Tokenizer), TikTokenizer: a
    file (--tokenizer-model). GPT2BPETokenizer: --vocab-file and --merge-file. BertWordPieceLowerCase,
    BertWordPieceCase: --vocab-file. NullTokenizer: the text is integers (--vocab-size)."""
    tokenizer_model: str | None = None
    """A tokenizer.json or the directory that holds it; a SentencePiece .model; a tiktoken file (.tiktoken or .json)."""
    vocab_file: str | None = None
    """vocab.json of a GPT-2 tokenizer; vocab.txt of a BERT tokenizer."""
    merge_file: str | None = None
    """merges.txt of a GPT-2 tokenizer."""
    vocab_size: int | None = None
    """Number of tokens of a NullTokenizer, whose end-of-document token is the next id; number of ids to keep of the
    .json of a TikTokenizer, special tokens included (default: what the file says, else 131072)."""
    eod_token: str | None = None
    """Text of the end-of-document token. Default: what the tokenizer's own files call its end-of-sequence token."""
    vocab_extra_ids: int = 0
    """Sentinel tokens (<extra_id_0> and so on) to add after a BERT or SentencePiece vocabulary, as T5 needs them."""
    tiktoken_pattern: str | None = None
    """How a TikTokenizer splits text: v1 or v2 (of a .json without a pattern; default: v2), or the encoding that a
    .tiktoken file holds (default: by the file's name)."""
    tiktoken_num_special_tokens: int = 1000
    """Ids that a TikTokenizer's .json sets aside in front of its vocabulary."""
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
            eod_token=data.eod_token,
            vocab_extra_ids=data.vocab_extra_ids,
            tiktoken_pattern=data.tiktoken_pattern,
            tiktoken_num_special_tokens=data.tiktoken_num_special_tokens,
        )


def require_file(path: str | None, flag: str, what: str) -> Path:
    """The path given by ``flag`` if it is a file; TokenizerError otherwise."""
    if path is None:
        raise TokenizerError(f"{flag} must be given: {what}.")
    if not Path(path).is_file():
        raise TokenizerError(f"{flag} must be an existing file ({what}); given {path!r}, which is not one.")
    return Path(path)


def extra_tokens(options: TokenizerOptions) -> list[str]:
    """The sentinels that ``--vocab-extra-ids`` asks for."""
    if options.vocab_extra_ids < 0:
        raise TokenizerError(f"--vocab-extra-ids must be at least 0; given {options.vocab_extra_ids}.")
    return [f"<extra_id_{number}>" for number in range(options.vocab_extra_ids)]


def find_sentinels(token_id: Callable[[str], int | None]) -> tuple[int, ...]:
    """Ids of ``<extra_id_0>``, ``<extra_id_1>`` and so on, as far as they exist."""
    ids = (token_id(f"<extra_id_{number}>") for number in itertools.count())
    return tuple(itertools.takewhile(lambda found: found is not None, ids))


def find_eod(
    token_id: Callable[[str], int | None], eod_token: str | None, default: int | None, path: Path
) -> int | None:
    """Id of ``eod_token``, which must be a token of ``path``; ``default`` where none is named."""
    if eod_token is None:
        return default
    if token_id(eod_token) is None:
        raise TokenizerError(f"--eod-token must be a token of {path}; given {eod_token!r}, which is not one.")
    return token_id(eod_token)


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
