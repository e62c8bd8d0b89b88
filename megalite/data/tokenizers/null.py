"""``--tokenizer-type NullTokenizer``: the text is the tokens, as integers with spaces between them.

For tests, benchmarks, and data that was tokenized elsewhere. ``--vocab-size N`` allows the ids 0 to N-1, and N is the
end-of-document token, so that the vocabulary has N+1 entries, as in Megatron-LM.
"""

from typing import Sequence

from megalite.data.tokenizers._base import SpecialTokens, Tokenizer, TokenizerOptions, fingerprint
from megalite.errors import TokenizerError


class NullTokenizer:
    name = "NullTokenizer"

    def __init__(self, vocab_size: int):
        self.eod: int | None = vocab_size
        self.special = SpecialTokens(eos=vocab_size)
        self.vocab_size = vocab_size + 1
        self.fingerprint = fingerprint(["NullTokenizer", vocab_size])

    def encode(self, text: str) -> list[int]:
        try:
            ids = [int(word) for word in text.split()]
        except ValueError as error:
            raise TokenizerError(
                f"NullTokenizer reads integers with spaces between them; given {error.args[0]}."
            ) from None
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            raise TokenizerError(
                f"NullTokenizer's ids must be 0 to {self.vocab_size - 1}; given {min(ids)} to {max(ids)}: "
                "raise --vocab-size."
            )
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(token) for token in ids)


def build(options: TokenizerOptions) -> Tokenizer:
    if options.vocab_size is None or options.vocab_size < 1:
        raise TokenizerError(
            f"NullTokenizer needs --vocab-size, the number of tokens, at least 1; given {options.vocab_size}."
        )
    if options.eod_token is not None:
        raise TokenizerError(
            f"--eod-token names a token's text, which NullTokenizer has not; given {options.eod_token!r}; its "
            f"end-of-document token is {options.vocab_size}: leave the flag out."
        )
    return NullTokenizer(options.vocab_size)
