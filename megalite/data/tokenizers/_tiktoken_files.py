"""The files that ``TikTokenizer`` reads.

- A rank file (``.tiktoken``; Llama 3's ``tokenizer.model``): a token a line, its bytes in base64 and its rank. It is of
  a published encoding, which its name (``cl100k_base.tiktoken``) or ``--tiktoken-pattern`` tells.
- Megatron-LM's ``.json``: a list of ``{"rank", "token_bytes", "token_str"}``, split by ``--tiktoken-pattern`` v1 or v2.
- Mistral's ``tekken.json``, which holds such a list, its pattern, its sizes, and in newer ones its special tokens.

In both kinds of ``.json`` the special tokens have the first ids; those without a name are called ``<SPECIAL_7>``.
"""

import base64
import json
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from megalite.data.tokenizers._base import TokenizerOptions
from megalite.data.tokenizers._encodings import ENCODINGS, PATTERNS
from megalite.errors import TokenizerError

ROLES = {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "mask": "<mask>", "pad": "<pad>", "cls": "<cls>", "sep": "<sep>"}
"""Role and name of Megatron-LM's special tokens, by id. Mistral's begin with the same three."""
DEFAULT_VOCAB_SIZE = 1 << 17  # Megatron-LM's


class Definition(NamedTuple):
    """All that decides the ids. ``roles`` maps a role to a special token, and ``reads_special_tokens`` says whether one
    that a text quotes becomes its id.
    """

    pattern: str
    ranks: Mapping[bytes, int]
    special_tokens: Mapping[str, int]
    roles: Mapping[str, str]
    reads_special_tokens: bool


def read_definition(path: Path, options: TokenizerOptions) -> Definition:
    """The definition in ``path``, whichever kind of file it is. Raises TokenizerError for any other."""
    content = path.read_bytes()
    if content.lstrip()[:1] not in (b"[", b"{"):
        definition = _from_ranks(path, content, options.tiktoken_pattern)
    else:
        try:
            file = json.loads(content)
            read = _from_megatron if isinstance(file, list) else _from_tekken
            definition = read(path, file, options)
        except (ValueError, KeyError, TypeError) as error:
            raise TokenizerError(
                f"{path} must be a vocabulary as Megatron-LM or Mistral write it; {type(error).__name__}: {error}."
            ) from None
    missing = sum(bytes([value]) not in definition.ranks for value in range(256))
    if missing:
        raise TokenizerError(f"{path} must hold a token for each of the 256 bytes; it lacks {missing} of them.")
    if len(set(definition.ranks.values())) < len(definition.ranks):
        raise TokenizerError(f"{path} must give each token a rank of its own; it does not.")
    if set(definition.ranks.values()) & set(definition.special_tokens.values()):
        raise TokenizerError(
            f"{path} must leave the ids of its special tokens free, and does not: it holds another encoding than the "
            "one that its name or --tiktoken-pattern tells."
        )
    return definition


def _from_ranks(path: Path, content: bytes, given: str | None) -> Definition:
    name = given or path.stem
    if name not in ENCODINGS:
        raise TokenizerError(
            f"the encoding of {path} must be known, for the file does not hold its pattern; given {name!r}: name it "
            f"with --tiktoken-pattern, one of {', '.join(ENCODINGS)}."
        )
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError:
            raise TokenizerError(
                f"{path}:{number}: a line must hold a token in base64 and its rank; given {line[:80]!r}: is it a "
                "tiktoken file?"
            ) from None
    known = ENCODINGS[name]
    return Definition(known.pattern, ranks, known.special_tokens, {"eos": known.eos}, reads_special_tokens=False)


def _from_megatron(path: Path, entries: list[Any], options: TokenizerOptions) -> Definition:
    name = options.tiktoken_pattern or "v2"
    if name not in PATTERNS:
        raise TokenizerError(f"--tiktoken-pattern must be one of {', '.join(PATTERNS)} with {path}; given {name!r}.")
    num_special = options.tiktoken_num_special_tokens
    ranks = _ranks(path, entries, num_special, options.vocab_size or DEFAULT_VOCAB_SIZE)
    special_tokens = _special_tokens(path, list(ROLES.values()), num_special)
    return Definition(PATTERNS[name], ranks, special_tokens, ROLES, reads_special_tokens=True)


def _from_tekken(path: Path, file: dict[str, Any], options: TokenizerOptions) -> Definition:
    config = file["config"]
    num_special = config["default_num_special_tokens"]
    ranks = _ranks(path, file["vocab"], num_special, options.vocab_size or config["default_vocab_size"])
    declared = sorted(file.get("special_tokens") or [], key=lambda token: token["rank"])
    names = [token["token_str"] for token in declared] or list(ROLES.values())[:3]
    roles = {role: token for role, token in ROLES.items() if token in names}
    return Definition(
        config["pattern"], ranks, _special_tokens(path, names, num_special), roles, reads_special_tokens=False
    )


def _ranks(path: Path, entries: Sequence[Any], num_special: int, vocab_size: int) -> dict[bytes, int]:
    """Token -> id of the first ``vocab_size - num_special`` entries."""
    kept = entries[: max(vocab_size - num_special, 0)]
    if [entry["rank"] for entry in kept] != list(range(len(kept))):
        raise TokenizerError(f"{path} must list its tokens by rank, 0, 1 and so on; it does not.")
    ranks = {base64.b64decode(entry["token_bytes"], validate=True): num_special + entry["rank"] for entry in kept}
    if len(ranks) < vocab_size - num_special:
        raise TokenizerError(
            f"{path} must hold the {vocab_size - num_special} tokens of a vocabulary of {vocab_size} with "
            f"{num_special} special tokens; it holds {len(ranks)} different ones: give --vocab-size "
            f"{len(ranks) + num_special}."
        )
    return ranks


def _special_tokens(path: Path, names: list[str], count: int) -> dict[str, int]:
    if len(names) > count:
        raise TokenizerError(
            f"the special tokens of {path} must have room: there are {len(names)}, and {count} ids are set aside: give "
            "--tiktoken-num-special-tokens."
        )
    names = names + [f"<SPECIAL_{number}>" for number in range(len(names), count)]
    return {name: number for number, name in enumerate(names)}
