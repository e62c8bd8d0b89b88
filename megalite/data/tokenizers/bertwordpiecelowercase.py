"""``--tokenizer-type BertWordPieceLowerCase``: BERT's WordPiece from a ``vocab.txt``; ignores case and accents."""

from megalite.data.tokenizers._base import Tokenizer, TokenizerOptions
from megalite.data.tokenizers._wordpiece import build_wordpiece


def build(options: TokenizerOptions) -> Tokenizer:
    return build_wordpiece(options, lowercase=True)
