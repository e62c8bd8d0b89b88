"""``--tokenizer-type SentencePieceTokenizer``: a SentencePiece ``.model``, read by the `sentencepiece` library.

A text that quotes ``</s>`` or another control token is encoded as ordinary characters, and nothing is put around a
text, as in Megatron-LM. ``--vocab-extra-ids`` adds sentinels after the pieces.
"""

import hashlib
from itertools import groupby
from typing import Any, Sequence

from megalite.data.optional import require_package
from megalite.data.tokenizers._base import (
    SpecialTokens,
    Tokenizer,
    TokenizerOptions,
    extra_tokens,
    find_eod,
    find_sentinels,
    fingerprint,
    require_file,
)
from megalite.errors import TokenizerError


class SentencePieceTokenizer:
    name = "SentencePieceTokenizer"

    def __init__(self, processor: Any, identity: str, extra: Sequence[str]):
        self._processor = processor
        self._num_pieces = processor.get_piece_size()
        self._extra = {token: self._num_pieces + number for number, token in enumerate(extra)}
        # Ids of which the library's decoder makes nothing.
        self._silent = {token_id: token for token, token_id in self._extra.items()}
        self._silent |= {n: processor.id_to_piece(n) for n in range(self._num_pieces) if processor.is_control(n)}
        self.vocab_size = self._num_pieces + len(extra)
        self.fingerprint = fingerprint([self.name, identity, *extra])
        self.eod: int | None = None
        roles = {role: getattr(processor, f"{role}_id")() for role in ("bos", "eos", "pad", "unk")}
        others = {role: self.token_id(f"[{role.upper()}]") for role in ("cls", "sep", "mask")}
        roles = {role: token_id for role, token_id in roles.items() if token_id >= 0}  # -1: the model has none
        self.special = SpecialTokens(**roles, **others, sentinels=find_sentinels(self.token_id))

    @property
    def model(self) -> bytes:
        """What the ``.model`` holds."""
        return self._processor.serialized_model_proto()

    def token_id(self, token: str) -> int | None:
        """Id of the piece or sentinel with this text, or None."""
        if token in self._extra:
            return self._extra[token]
        found = self._processor.piece_to_id(token)  # the unknown piece's for what is no piece
        return found if self._processor.id_to_piece(found) == token else None

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            return self._processor.encode([text.encode("utf-8") for text in texts], out_type=int, num_threads=1)
        except UnicodeEncodeError as error:  # half of a surrogate pair
            raise TokenizerError(f"{self.name} cannot encode a text: {error}.") from None

    def decode(self, ids: Sequence[int]) -> str:
        parts = []
        for silent, run in groupby(map(int, ids), self._silent.__contains__):
            if silent:
                parts += [self._silent[token_id] for token_id in run]
            else:
                parts.append(self._decode_pieces(list(run)))
        return "".join(parts)

    def _decode_pieces(self, ids: list[int]) -> str:
        if not 0 <= min(ids) <= max(ids) < self._num_pieces:
            raise TokenizerError(
                f"{self.name}'s ids must be 0 to {self.vocab_size - 1}; given {min(ids)} to {max(ids)}."
            )
        return self._processor.decode(ids)


def build(options: TokenizerOptions) -> Tokenizer:
    path = require_file(options.tokenizer_model, "--tokenizer-model", "a SentencePiece .model")
    library = require_package("sentencepiece", options.tokenizer_type, TokenizerError)
    content = path.read_bytes()
    processor = library.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(content)
    except RuntimeError:
        raise TokenizerError(
            f"--tokenizer-model must be a SentencePiece .model; {path} cannot be read as one."
        ) from None
    tokenizer = SentencePieceTokenizer(processor, hashlib.sha256(content).hexdigest(), extra_tokens(options))
    tokenizer.eod = find_eod(tokenizer.token_id, options.eod_token, tokenizer.special.eos, path)
    return tokenizer
