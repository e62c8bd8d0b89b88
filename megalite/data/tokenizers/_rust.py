"""The `tokenizers` library behind our interface."""

from typing import Sequence

import tokenizers

from megalite.data.tokenizers._base import SpecialTokens
from megalite.errors import TokenizerError


class RustTokenizer:
    """A ``tokenizers.Tokenizer`` as a :class:`megalite.data.tokenizers.Tokenizer`.

    Truncation and padding, which a saved ``tokenizer.json`` may carry from some fine-tuning, are switched off: either
    would change the corpus without a word. So is BPE dropout, for the same text must always give the same ids.
    """

    def __init__(self, backend: tokenizers.Tokenizer, name: str, fingerprint: str, add_special_tokens: bool = True):
        backend.no_truncation()
        backend.no_padding()
        if getattr(backend.model, "dropout", None) is not None:
            backend.model.dropout = None
        self.backend = backend
        self.add_special_tokens = add_special_tokens
        self.name = name
        self.fingerprint = fingerprint
        self.vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.eod: int | None = None
        self.special = SpecialTokens()

    def token_id(self, token: str) -> int | None:
        """Id of the token with this text, or None."""
        return self.backend.token_to_id(token)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=self.add_special_tokens)
        except Exception as error:  # the library raises plain Exception, e.g. for an unknown word and no unknown token
            raise TokenizerError(f"{self.name} cannot encode a text: {error}.") from None
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        return self.backend.decode(list(ids), skip_special_tokens=False)
