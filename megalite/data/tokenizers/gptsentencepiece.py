"""``--tokenizer-type GPTSentencePieceTokenizer``: Megatron-LM's other name for ``SentencePieceTokenizer``."""

from megalite.data.tokenizers.sentencepiece import build

__all__ = ["build"]
