"""GPT: decoder-only transformers, from GPT-2 to Llama, by the fields of :class:`megalite.config.ModelConfig`."""

from functools import partial
from typing import Mapping

import torch
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.attention import Positions
from megalite.nn.block import TransformerLayer
from megalite.nn.context import LayerContext
from megalite.nn.dropout import Dropout
from megalite.nn.embedding import PositionEmbedding, VocabParallelEmbedding, vocabulary_parameter
from megalite.nn.linear import column_parallel
from megalite.nn.output import output_loss
from megalite.nn.norm import make_norm
from megalite.nn.recompute import RecomputePlan
from megalite.nn.residual import residual_dtype
from megalite.nn.rotary import Rotary
from megalite.nn.unit import Tensors, Unit
from megalite.nn.vocabulary import VocabularyShard
from megalite.parallel.p2p import TensorSpec

WORD_EMBEDDING = "embedding.word.weight"
DEFAULT_PLAN = RecomputePlan()


def units(model: ModelConfig, recompute: RecomputePlan = DEFAULT_PLAN) -> list[Unit]:
    """The model as units, in order. Of ``recompute`` only the attention core's part is applied here; whole layers are
    recomputed per stage (:meth:`RecomputePlan.apply`)."""
    positions = Positions(Rotary(model) if model.position_embedding_type == "rope" else None)
    dropout = {"sample_ids"} if model.hidden_dropout > 0 else set()
    learned = {"position_ids"} if model.position_embedding_type == "learned_absolute" else set()
    embedding = Unit(
        "embedding", "embedding", partial(_build_embedding, model), 0.0, frozenset({"tokens"} | learned | dropout)
    )
    layer_fields = {"document_ids"} | dropout
    layer_fields |= {"position_ids"} if positions.rotary is not None else set()
    layer_fields |= {"sample_ids"} if model.attention_dropout > 0 else set()
    layers = [
        Unit(
            name=f"layers.{index}",
            kind="layer",
            build=partial(_build_layer, f"layers.{index}", model, positions, recompute.core_attention),
            cost=_layer_flops(model),
            batch_fields=frozenset(layer_fields),
        )
        for index in range(model.num_layers)
    ]
    head = Unit(
        name="head",
        kind="head",
        build=partial(_build_head, model),
        cost=2.0 * model.hidden_size * model.padded_vocab_size(1),
        batch_fields=frozenset({"labels", "loss_mask"}),
        ties=(WORD_EMBEDDING,) if model.tied else (),
    )
    return [embedding, *layers, head]


def carry_spec(
    model: ModelConfig, micro_batch_size: int, tp_size: int, sequence_parallel: bool, dtype: torch.dtype
) -> dict[str, TensorSpec]:
    """What stages exchange: the hidden states, of which each rank has its part under sequence parallelism.

    ``dtype`` is the parameters'."""
    sequence = model.seq_length // tp_size if sequence_parallel else model.seq_length
    return {"hidden": TensorSpec((sequence, micro_batch_size, model.hidden_size), residual_dtype(model, dtype))}


def num_parameters(model: ModelConfig) -> int:
    """Number of parameters of the whole model, without padding, a tied matrix once, by arithmetic alone."""
    hidden, bias = model.hidden_size, int(model.linear_bias)
    norm = hidden * (2 if model.normalization == "LayerNorm" else 1)
    heads_width = model.num_attention_heads * model.head_dim
    qkv_width = heads_width + 2 * model.query_groups * model.head_dim
    up_width = model.ffn_size * (2 if model.activation == "swiglu" else 1)
    attention = qkv_width * (hidden + int(model.qkv_bias)) + hidden * (heads_width + bias)
    if model.qk_layernorm:
        attention += 2 * norm // hidden * model.head_dim
    mlp = up_width * (hidden + bias) + hidden * (model.ffn_size + bias)
    positions = model.num_positions * hidden if model.position_embedding_type == "learned_absolute" else 0
    matrices = model.vocab_size * hidden * (1 if model.tied else 2)
    return matrices + positions + model.num_layers * (attention + mlp + 2 * norm) + norm


def _layer_flops(model: ModelConfig) -> float:
    """Forward FLOPs of a layer per token: its products, and causal attention over half the sequence on average."""
    heads_width = model.num_attention_heads * model.head_dim
    projections = model.hidden_size * (2 * heads_width + 2 * model.query_groups * model.head_dim)
    feed_forward = model.hidden_size * model.ffn_size * (3 if model.activation == "swiglu" else 2)
    return 2.0 * (projections + feed_forward + model.seq_length * heads_width)


def _shard(model: ModelConfig, ctx: LayerContext) -> VocabularyShard:
    return VocabularyShard.of(model.vocab_size, model.padded_vocab_size(ctx.tp.size), ctx.tp)


class Embedding(nn.Module):
    """From ``tokens`` to the first hidden states: word vectors, learned positions, dropout."""

    def __init__(self, model: ModelConfig, ctx: LayerContext):
        super().__init__()
        self.word = VocabParallelEmbedding(
            "embedding.word", model.hidden_size, model.init_method_std, _shard(model, ctx), ctx
        )
        self.position = None
        if model.position_embedding_type == "learned_absolute":
            self.position = PositionEmbedding(
                "embedding.position", model.num_positions, model.hidden_size, model.init_method_std, ctx
            )
        self.dropout = Dropout("embedding", model.hidden_dropout, ctx)
        self.dtype = residual_dtype(model, ctx.dtype)

    def forward(self, carry: Tensors, batch: Tensors) -> Tensors:
        hidden = self.word(batch["tokens"]).to(self.dtype)
        if self.position is not None:
            hidden = hidden.add_(self.position(batch["position_ids"]))
        return {**carry, "hidden": self.dropout(hidden, batch)}


class Head(nn.Module):
    """From the last hidden states to the loss: final norm, output matrix (tied or its own), cross-entropy."""

    def __init__(self, model: ModelConfig, ctx: LayerContext, held: Mapping[str, nn.Parameter]):
        super().__init__()
        self.ctx, self.shard, self.label_smoothing = ctx, _shard(model, ctx), model.label_smoothing
        self.final_norm = make_norm("final_norm", model.hidden_size, model, ctx, ctx.sequence_axes)
        if model.tied and WORD_EMBEDDING in held:
            self.weight = held[WORD_EMBEDDING]
        else:
            name = WORD_EMBEDDING if model.tied else "head.weight"
            self.weight = vocabulary_parameter(
                name, model.hidden_size, model.init_method_std, self.shard, ctx, tie_copy=model.tied
            )

    def logits(self, carry: Tensors) -> torch.Tensor:
        """This rank's columns of the logits, padding included: [s, b, padded vocabulary / tp]."""
        return column_parallel(self.final_norm(carry["hidden"]), self.weight, None, self.ctx)

    def forward(self, carry: Tensors, batch: Tensors) -> Tensors:
        hidden, labels, mask = self.final_norm(carry["hidden"]), batch["labels"].t(), batch["loss_mask"].t()
        loss_sum = output_loss(hidden, self.weight, labels, mask, self.shard, self.label_smoothing, self.ctx)
        return {"loss_sum": loss_sum, "num_tokens": mask.sum()}


def _build_embedding(model: ModelConfig, ctx: LayerContext, held: Mapping[str, nn.Parameter]) -> nn.Module:
    return Embedding(model, ctx)


def _build_layer(
    name: str,
    model: ModelConfig,
    positions: Positions,
    recompute_core: bool,
    ctx: LayerContext,
    held: Mapping[str, nn.Parameter],
) -> nn.Module:
    return TransformerLayer(name, model, ctx, positions, recompute_core)


def _build_head(model: ModelConfig, ctx: LayerContext, held: Mapping[str, nn.Parameter]) -> nn.Module:
    return Head(model, ctx, held)
