"""Rules of the model's shape, by itself and over tensor-parallel ranks."""

from typing import Iterator

from megalite.config.report import either, nearest_multiples
from megalite.config.root import Config


def _divisors(number: int) -> str:
    return either([divisor for divisor in range(1, number + 1) if number % divisor == 0])


def heads_divide_hidden_size(config: Config, world_size: int) -> Iterator[str]:
    model = config.model
    if model.kv_channels is None and model.hidden_size % model.num_attention_heads:
        sizes = nearest_multiples(model.hidden_size, model.num_attention_heads)
        yield (
            f"hidden_size ({model.hidden_size}) must be divisible by num_attention_heads "
            f"({model.num_attention_heads}): use {sizes}, or set kv_channels."
        )


def query_groups_need_their_switch(config: Config, world_size: int) -> Iterator[str]:
    model = config.model
    if model.num_query_groups is not None and not model.group_query_attention:
        yield f"num_query_groups ({model.num_query_groups}) needs group_query_attention: add --group-query-attention."


def query_groups_divide_heads(config: Config, world_size: int) -> Iterator[str]:
    heads, groups = config.model.num_attention_heads, config.model.query_groups
    if heads % groups:
        yield (
            f"num_attention_heads ({heads}) must be divisible by num_query_groups ({groups}): "
            f"use {_divisors(heads)} query groups."
        )


def tensor_parallel_divides_heads(config: Config, world_size: int) -> Iterator[str]:
    heads, tp = config.model.num_attention_heads, config.parallel.tensor_model_parallel_size
    if heads % tp:
        yield (
            f"num_attention_heads ({heads}) must be divisible by tensor_model_parallel_size ({tp}): "
            f"use {_divisors(heads)}."
        )


def tensor_parallel_divides_query_groups(config: Config, world_size: int) -> Iterator[str]:
    groups, tp = config.model.query_groups, config.parallel.tensor_model_parallel_size
    if config.model.group_query_attention and groups % tp:
        yield (
            f"num_query_groups ({groups}) must be divisible by tensor_model_parallel_size ({tp}): "
            f"use {_divisors(groups)}."
        )


def tensor_parallel_divides_ffn(config: Config, world_size: int) -> Iterator[str]:
    ffn, tp = config.model.ffn_size, config.parallel.tensor_model_parallel_size
    if ffn % tp:
        yield (
            f"ffn_hidden_size ({ffn}) must be divisible by tensor_model_parallel_size ({tp}): "
            f"use {nearest_multiples(ffn, tp)}."
        )


def ffn_is_not_empty(config: Config, world_size: int) -> Iterator[str]:
    if config.model.ffn_size == 0:
        yield f"ffn_hidden_size must be given when hidden_size ({config.model.hidden_size}) is below 24 under swiglu."


def rotated_channels_come_in_pairs(config: Config, world_size: int) -> Iterator[str]:
    model = config.model
    rotated = int(model.head_dim * model.rotary_percent)
    if model.position_embedding_type == "rope" and (rotated < 2 or rotated % 2):
        yield (
            f"position_embedding_type rope must rotate an even number of channels of each head; head dimension "
            f"{model.head_dim} x rotary_percent ({model.rotary_percent}) gives {rotated}: change num_attention_heads, "
            "kv_channels or rotary_percent."
        )


def learned_positions_reach_the_end(config: Config, world_size: int) -> Iterator[str]:
    model = config.model
    if model.position_embedding_type == "learned_absolute" and model.seq_length > model.num_positions:
        yield (
            f"seq_length ({model.seq_length}) must be at most max_position_embeddings ({model.num_positions}) with "
            "learned positions: raise it, shorten seq_length, or use --position-embedding-type rope."
        )


def one_activation(config: Config, world_size: int) -> Iterator[str]:
    chosen = [name for name in ("swiglu", "squared_relu", "relu") if getattr(config.model, name)]
    if len(chosen) > 1:
        yield f"at most one activation may be chosen; given {' and '.join(chosen)}: keep one."


def fused_attention_has_no_dropout(config: Config, world_size: int) -> Iterator[str]:
    model = config.model
    if model.attention_backend == "fused" and model.attention_dropout > 0:
        yield (
            f"attention_backend fused needs attention_dropout 0; given {model.attention_dropout}: set it to 0, or use "
            "--attention-backend auto or unfused."
        )


def dropout_is_a_step_away_from_all_and_nothing(config: Config, world_size: int) -> Iterator[str]:
    for name in ("attention_dropout", "hidden_dropout"):
        p = getattr(config.model, name)
        if p > 0 and not 0 < round(p * 2**16) < 2**16:
            yield (
                f"{name} is rounded to a multiple of 2^-16, and must not become 0 or 1 by that; given {p}: use 0, or "
                "from 2^-16 (0.000015258789) to 1 - 2^-16 (0.99998474)."
            )
