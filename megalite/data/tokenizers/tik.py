"""``--tokenizer-type TikTokenizer``: byte-level BPE from a file of ranks, applied by the `tiktoken` library.

Which files those are is told in :mod:`megalite.data.tokenizers._tiktoken_files`. A special token that a text quotes
becomes its id with Megatron-LM's ``.json``, as there, and is ordinary characters with the other files.
"""

import base64
from typing import Any, Sequence

from megalite.data.optional import require_package
from megalite.data.tokenizers._base import (
    SpecialTokens,
    Tokenizer,
    TokenizerOptions,
    find_eod,
    fingerprint,
    require_file,
)
from megalite.data.tokenizers._tiktoken_files import Definition, read_definition
from megalite.errors import TokenizerError


class TikTokenizer:
    name = "TikTokenizer"

    def __init__(self, encoding: Any, definition: Definition):
        self._encoding = encoding
        self.definition = definition
        self._allowed_special = "all" if definition.reads_special_tokens else set()
        self.vocab_size = encoding.max_token_value + 1
        self.special = SpecialTokens(
            **{role: definition.special_tokens[token] for role, token in definition.roles.items()}
        )
        self.eod: int | None = None
        ranks = sorted((rank, base64.b64encode(token).decode("ascii")) for token, rank in definition.ranks.items())
        self.fingerprint = fingerprint([self.name, definition.pattern, ranks, definition.special_tokens])

    def token_id(self, token: str) -> int | None:
        """Id of the special token with this text, or None."""
        return self.definition.special_tokens.get(token)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            return [
                self._encoding.encode(text, allowed_special=self._allowed_special, disallowed_special=())
                for text in texts
            ]
        except ValueError as error:  # a pattern gives up on some hundred thousand spaces in a row
            raise TokenizerError(f"{self.name} cannot encode a text: {error}.") from None

    def decode(self, ids: Sequence[int]) -> str:
        try:
            return self._encoding.decode(list(map(int, ids)))
        except (KeyError, OverflowError) as error:
            raise TokenizerError(f"{self.name}'s ids must be those of tokens; {error.args[0]}.") from None


def build(options: TokenizerOptions) -> Tokenizer:
    path = require_file(options.tokenizer_model, "--tokenizer-model", "a tiktoken file, .tiktoken or .json")
    library = require_package("tiktoken", options.tokenizer_type, TokenizerError)
    definition = read_definition(path, options)
    try:
        encoding = library.Encoding(
            path.stem,
            pat_str=definition.pattern,
            mergeable_ranks=dict(definition.ranks),
            special_tokens=dict(definition.special_tokens),
        )
    except ValueError as error:
        raise TokenizerError(
            f"--tokenizer-model must be a tiktoken file; {path} cannot be used as one: {error}."
        ) from None
    tokenizer = TikTokenizer(encoding, definition)
    tokenizer.eod = find_eod(tokenizer.token_id, options.eod_token, tokenizer.special.eos, path)
    return tokenizer
