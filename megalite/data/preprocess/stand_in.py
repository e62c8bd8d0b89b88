"""Tokenizers as the `gigatoken` package takes them.

Its own loaders make of every special token that a text quotes the token's id. Those of SentencePiece and tiktoken files
do not (see their modules), so it gets these without special tokens.
"""

import base64
import functools
import json
import tempfile
from typing import Any, NamedTuple, Sequence

from megalite.data.tokenizers import Tokenizer
from megalite.data.tokenizers._encodings import ENCODINGS
from megalite.data.tokenizers._rust import RustTokenizer
from megalite.data.tokenizers.sentencepiece import SentencePieceTokenizer
from megalite.data.tokenizers.tik import TikTokenizer

_SCHEMES = {
    ENCODINGS[name].pattern: scheme
    for name, scheme in (("r50k_base", "gpt2"), ("cl100k_base", "gpt4"), ("o200k_base", "o200k"))
}


class StandIn(NamedTuple):
    """``backend`` encodes what is between ``prefix`` and ``suffix``, ids that the tokenizer puts around each text.

    ``special_texts`` are those that might be taken for special tokens, for a test whether both do the same with them.
    """

    backend: Any
    special_texts: Sequence[str]
    prefix: Sequence[int] = ()
    suffix: Sequence[int] = ()


@functools.singledispatch
def stand_in(tokenizer: Tokenizer) -> StandIn:
    """``tokenizer`` rebuilt in gigatoken.

    Raises ImportError where the package is missing, ValueError for a kind of tokenizer that it does not know, and
    whatever it raises for a model that it does not know.
    """
    raise ValueError(f"it does not know a {tokenizer.name}")


@stand_in.register
def _from_json(tokenizer: RustTokenizer) -> StandIn:
    from gigatoken.gigatoken_rs import load_hf_json

    added = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
    return StandIn(load_hf_json(tokenizer.backend.to_str()), added, *added_around(tokenizer))


@stand_in.register
def _from_sentencepiece(tokenizer: SentencePieceTokenizer) -> StandIn:
    from gigatoken._load.sentencepiece import sentencepiece_to_tokenizer_json
    from gigatoken.gigatoken_rs import load_hf_json

    description = json.loads(sentencepiece_to_tokenizer_json(tokenizer.model))
    added = description["added_tokens"]
    description["added_tokens"] = [token for token in added if not token["special"]]
    return StandIn(load_hf_json(json.dumps(description)), [token["content"] for token in added])


@stand_in.register
def _from_tiktoken(tokenizer: TikTokenizer) -> StandIn:
    from gigatoken.gigatoken_rs import BPETokenizer

    definition = tokenizer.definition
    if definition.pattern not in _SCHEMES or definition.reads_special_tokens:
        raise ValueError("it knows the published encodings of tiktoken and Llama 3 only")
    with tempfile.NamedTemporaryFile("wb", suffix=".tiktoken") as file:
        for token, rank in sorted(definition.ranks.items(), key=lambda item: item[1]):
            file.write(b"%s %d\n" % (base64.b64encode(token), rank))
        file.flush()
        backend = BPETokenizer.from_tiktoken(file.name, _SCHEMES[definition.pattern])
    return StandIn(backend, list(definition.special_tokens))


def added_around(tokenizer: RustTokenizer) -> tuple[list[int], list[int]]:
    """Ids that the tokenizer itself puts before and after each text."""
    whole = tokenizer.encode("a")
    (inner,) = inner_ids(tokenizer, ["a"])
    for start in range(len(whole) - len(inner) + 1):
        prefix, suffix = whole[:start], whole[start + len(inner) :]
        if all([*prefix, *inner_ids(tokenizer, [text])[0], *suffix] == tokenizer.encode(text) for text in ("a", "b c")):
            return prefix, suffix
    raise AssertionError("a post-processor adds tokens before and after a text, nothing else")


def inner_ids(tokenizer: RustTokenizer, texts: Sequence[str]) -> list[list[int]]:
    encodings = tokenizer.backend.encode_batch_fast(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]
