"""GPT configurations and batches that the tests of models share."""

import zlib

import torch

from megalite.config import ModelConfig
from megalite.models import gpt
from megalite.nn.context import LayerContext
from megalite.nn.recompute import RecomputePlan
from megalite.state import Box

GPT2 = dict(
    num_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    seq_length=16,
    vocab_size=101,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
LLAMA = dict(
    **GPT2,
    ffn_hidden_size=48,
    normalization="RMSNorm",
    swiglu=True,
    disable_bias_linear=True,
    group_query_attention=True,
    num_query_groups=2,
    position_embedding_type="rope",
    untie_embeddings_and_output_weights=True,
)


def gpt2(**fields) -> ModelConfig:
    return ModelConfig(**{**GPT2, **fields})


def llama(**fields) -> ModelConfig:
    return ModelConfig(**{**LLAMA, **fields})


def make_batch(model: ModelConfig, batch_size: int = 3, documents: bool = False) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    s = model.seq_length
    ids = torch.randint(0, model.vocab_size, (batch_size, s + 1), generator=generator)
    batch = {
        "tokens": ids[:, :-1],
        "labels": ids[:, 1:],
        "loss_mask": (torch.rand(batch_size, s, generator=generator) < 0.8).float(),
        "position_ids": torch.arange(s).repeat(batch_size, 1),
        "sample_ids": torch.arange(batch_size) + 40,
    }
    if documents:
        batch["document_ids"] = torch.zeros(batch_size, s, dtype=torch.int64)
        batch["document_ids"][0, 5:] += 1
        batch["document_ids"][0, 6:] += 1
        batch["position_ids"][0, 5] = 0
        batch["position_ids"][0, 6:] -= 6
    return batch


def build(model: ModelConfig, ctx: LayerContext, plan: RecomputePlan = RecomputePlan()) -> tuple[list, dict]:
    """All units' modules in order, and the parameters by canonical name."""
    modules, held = [], {}
    for unit in plan.apply(gpt.units(model, plan)):
        modules.append(unit.build(ctx, held))
        held.update({param.spec.name: param for param in modules[-1].parameters()})
    return modules, held


def forward(modules: list, batch: dict) -> dict:
    carry = {}
    for module in modules:
        carry = module(carry, batch)
    return carry


def own(whole: torch.Tensor, param) -> torch.Tensor:
    return whole[param.spec.box.inside(Box.whole(param.spec.global_shape))]


def randomize(held: dict) -> dict[str, torch.Tensor]:
    """Give every parameter, biases and norms too, random values by its name; return the whole ones as leaves."""
    wholes = {}
    for name, param in held.items():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        whole = torch.randn(param.spec.global_shape, dtype=torch.float64, generator=generator) * 0.3
        if "norm" in name and name.endswith("weight"):
            whole += 1
        param.data[: param.spec.box.extent[0]] = own(whole, param)
        wholes[name] = whole.requires_grad_()
    return wholes
