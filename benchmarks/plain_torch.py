"""The yardstick: the same models in plain PyTorch, in one file, as a competent user would write them.

Causal attention through ``scaled_dot_product_attention``, fused AdamW, gradient clipping, nothing distributed. The
benchmarks train it beside megalite in the same run.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class PlainConfig:
    """Sizes of the model; ``style`` is gpt2 (learned positions, LayerNorm, GELU, biases, tied) or llama."""

    style: str = "gpt2"
    num_layers: int = 12
    hidden_size: int = 256
    num_heads: int = 8
    seq_length: int = 512
    vocab_size: int = 8192

    @property
    def ffn_size(self) -> int:
        return 4 * self.hidden_size if self.style == "gpt2" else self.hidden_size * 8 // 3 // 64 * 64


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Block(nn.Module):
    def __init__(self, config: PlainConfig):
        super().__init__()
        hidden, bias = config.hidden_size, config.style == "gpt2"
        norm = nn.LayerNorm if bias else nn.RMSNorm
        self.config = config
        self.norm1, self.norm2 = norm(hidden, eps=1e-5), norm(hidden, eps=1e-5)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias)
        self.out = nn.Linear(hidden, hidden, bias)
        self.up = nn.Linear(hidden, config.ffn_size * (1 if bias else 2), bias)
        self.down = nn.Linear(config.ffn_size, hidden, bias)

    def forward(self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.config.num_heads, -1).permute(2, 0, 3, 1, 4)
        if rope is not None:
            q, k = _rotate(q, *rope), _rotate(k, *rope)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, seq, hidden))
        up = self.up(self.norm2(x))
        if self.config.style == "gpt2":
            return x + self.down(F.gelu(up, approximate="tanh"))
        gate, value = up.chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * value)


class PlainGPT(nn.Module):
    """forward(tokens, labels [batch, seq]) -> mean loss."""

    def __init__(self, config: PlainConfig):
        super().__init__()
        self.config = config
        self.word = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.seq_length, config.hidden_size) if config.style == "gpt2" else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = (nn.LayerNorm if config.style == "gpt2" else nn.RMSNorm)(config.hidden_size, eps=1e-5)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                scale = math.sqrt(2 * config.num_layers) if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(parameter, std=0.02 / scale)
        if config.style == "gpt2":
            self.head.weight = self.word.weight
        self.register_buffer("rope", self._rope_table() if config.style == "llama" else None, persistent=False)

    def _rope_table(self) -> torch.Tensor:
        dim = self.config.hidden_size // self.config.num_heads
        frequencies = 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        angles = torch.outer(torch.arange(self.config.seq_length), frequencies).repeat(1, 2)
        return torch.stack((angles.cos(), angles.sin()))

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.word(tokens)
        if self.position is not None:
            x = x + self.position.weight[: tokens.shape[1]]
        rope = None if self.rope is None else (self.rope[0].to(x.dtype), self.rope[1].to(x.dtype))
        for block in self.blocks:
            x = block(x, rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.view(-1))


class PlainTrainer:
    """Model, fused AdamW and clipping: ``step(tokens, labels)`` is one training step and returns the loss."""

    def __init__(self, model: nn.Module, bf16: bool = False, compiled: bool = False):
        self._model = model
        self._forward = torch.compile(self._model) if compiled else self._model
        self._bf16 = bf16
        parameters = list(self._model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)

    def step(self, tokens: torch.Tensor, labels: torch.Tensor) -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            loss = self._forward(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.item()
