"""The benchmark's model as Hugging Face transformers has it. Needs `pip install transformers`."""

from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.plain_torch import PlainConfig
from megalite.errors import ConfigError


def load_transformers() -> ModuleType:
    """The package; raises ConfigError where it is missing."""
    try:
        import transformers
    except ImportError:
        raise ConfigError("--transformers needs the package transformers; it is not here: install it.") from None
    return transformers


class TransformersGPT(nn.Module):
    """GPT2LMHeadModel or LlamaForCausalLM of the same sizes: ``model(tokens, labels)`` is the mean loss."""

    def __init__(self, config: PlainConfig):
        super().__init__()
        transformers = load_transformers()
        common: dict[str, Any] = {"vocab_size": config.vocab_size, "use_cache": False}
        if config.style == "gpt2":
            sizes = {"n_embd": config.hidden_size, "n_layer": config.num_layers, "n_head": config.num_heads}
            dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
            family = transformers.GPT2Config(**common, **sizes, **dropout, n_positions=config.seq_length)
            self.model = transformers.GPT2LMHeadModel(family)
        else:
            family = transformers.LlamaConfig(
                **common,
                hidden_size=config.hidden_size,
                intermediate_size=config.ffn_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                max_position_embeddings=config.seq_length,
            )
            self.model = transformers.LlamaForCausalLM(family)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(tokens).logits.flatten(0, 1).float(), labels.flatten())
