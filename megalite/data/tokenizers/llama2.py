"""``--tokenizer-type Llama2Tokenizer``: Megatron-LM's name for a SentencePiece model, Llama 2's."""

from megalite.data.tokenizers.sentencepiece import build

__all__ = ["build"]
