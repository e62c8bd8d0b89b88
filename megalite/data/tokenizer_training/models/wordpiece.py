"""``--model-type wordpiece``: WordPiece with BERT's normalisation and words.

Pieces are learnt as a BPE of words whose first character is replaced by one of its own for that place: what begins with
such a character begins a word, and anything else continues one. (The library's own trainer for WordPiece numbers its
pieces in an order that changes from run to run.)
"""

from itertools import count
from typing import Iterator

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from megalite.data.tokenizer_training.request import Request
from megalite.errors import ConfigError

DEFAULT_PRESET = "bert"
OPTIONS = ("min_frequency", "cased")
_PRIVATE_USE = 0xF0000  # 131,068 characters from here on, which BERT's normalisation takes out of any text


def train(texts: Iterator[str], request: Request) -> tokenizers.Tokenizer:
    """Raises ConfigError for special tokens without an unknown one, and for a vocabulary smaller than the text's
    alphabet.
    """
    if request.unknown is None:
        raise ConfigError(
            "--model-type wordpiece needs a token for unknown words: choose --preset bert, roberta or t5."
        )
    normalizer, words = normalizers.BertNormalizer(lowercase=not request.cased), pre_tokenizers.BertPreTokenizer()
    firsts = FirstCharacters()
    marked = tokenizers.Tokenizer(models.BPE())
    marked.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    num_pieces = request.num_tokens - len(request.special_tokens)
    trainer = trainers.BpeTrainer(vocab_size=num_pieces, min_frequency=request.min_frequency or 2, show_progress=False)
    marked.train_from_iterator(
        (firsts.mark(words.pre_tokenize_str(normalizer.normalize_str(text))) for text in texts), trainer
    )
    pieces = [firsts.piece(token) for token in sorted(marked.get_vocab(), key=marked.token_to_id)]
    if len(pieces) > num_pieces:
        raise ConfigError(
            f"--vocab-size must hold every character of the text, at the beginning of a word and within one; given "
            f"{request.num_tokens}, and there are {len(pieces) + len(request.special_tokens)} with the special tokens."
        )
    vocab = {piece: number for number, piece in enumerate([*request.special_tokens, *pieces])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=request.unknown))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


class FirstCharacters:
    """A character of its own for each that begins a word, numbered as they come."""

    def __init__(self) -> None:
        self._codes = map(chr, count(_PRIVATE_USE))
        self._marked: dict[str, str] = {}
        self._original: dict[str, str] = {}

    def mark(self, words: list[tuple[str, tuple[int, int]]]) -> str:
        """``words``, and where they lie, as a text whose words begin with marked characters."""
        return " ".join([self._mark(word[0]) + word[1:] for word, _ in words])

    def piece(self, token: str) -> str:
        """WordPiece's spelling of a token that was learnt from marked words."""
        first = self._original.get(token[0])
        return f"##{token}" if first is None else first + token[1:]

    def _mark(self, character: str) -> str:
        if character not in self._marked:
            self._marked[character] = next(self._codes)
            self._original[self._marked[character]] = character
        return self._marked[character]
