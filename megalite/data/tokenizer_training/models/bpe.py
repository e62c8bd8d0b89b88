"""``--model-type bpe``: byte-level BPE, as GPT-2's and RoBERTa's. It can spell any text."""

from typing import Iterator

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from megalite.data.tokenizer_training.request import Request
from megalite.errors import ConfigError

DEFAULT_PRESET = "gpt2"
OPTIONS = ("min_frequency",)
NUM_BYTES = 256


def train(texts: Iterator[str], request: Request) -> tokenizers.Tokenizer:
    """Raises ConfigError for a vocabulary that cannot hold the bytes."""
    smallest = NUM_BYTES + len(request.special_tokens)
    if request.num_tokens < smallest:
        raise ConfigError(
            f"--vocab-size must be at least {smallest}: {NUM_BYTES} bytes and {len(request.special_tokens)} special "
            f"tokens; given {request.num_tokens}."
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # splits by GPT-2's regular expression
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=request.num_tokens,
        min_frequency=request.min_frequency or 2,
        special_tokens=list(request.special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
