"""``--tokenizer-type Llama2Tokenizer``: Megatron-LM's name for a Llama 2 ``tokenizer.model``, which is SentencePiece."""

from megalite.data.tokenizers.sentencepiece import build

__all__ = ["build"]
