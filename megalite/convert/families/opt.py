"""OPT. Its table of positions begins with two rows that stand for padding, which no token here has: they are zero."""

from typing import Any

from megalite.config import ModelConfig
from megalite.convert.families._fields import Fields, activation, unlike
from megalite.convert.families._heads import add_same, add_separate_qkv
from megalite.convert.layout import Layout
from megalite.convert.parameters import parameter_shapes
from megalite.state import Box

MODEL_TYPES = ("opt",)
BASE_PREFIX = "model."
BUFFERS = r".*\.decoder\.version"

_PADDING_ROWS = 2
_EPSILON = 1e-5
"""Of every LayerNorm of OPT; config.json has no field for it."""


def read_config(fields: Fields) -> dict[str, Any]:
    hidden = fields.take("hidden_size")
    for name, *allowed in (
        ("do_layer_norm_before", True),
        ("word_embed_proj_dim", hidden),
        ("enable_bias", True),
        ("layer_norm_elementwise_affine", True),
        ("_remove_final_layer_norm", False),
        ("layerdrop", 0.0, 0),
    ):
        fields.require(name, *allowed)
    fields.take("activation_dropout", None)  # Of training alone, and always zero in the released models.
    positions = fields.take("max_position_embeddings", 2048)
    return {
        "num_layers": fields.take("num_hidden_layers"),
        "hidden_size": hidden,
        "ffn_hidden_size": fields.take("ffn_dim"),
        "num_attention_heads": fields.take("num_attention_heads"),
        "seq_length": positions,
        "max_position_embeddings": positions,
        "norm_epsilon": _EPSILON,
        "untie_embeddings_and_output_weights": not fields.take("tie_word_embeddings", True),
        "vocab_size": fields.take("vocab_size"),
        "attention_dropout": float(fields.take("attention_dropout", 0.0)),
        "hidden_dropout": float(fields.take("dropout", 0.1)),
        **activation(fields, "activation_function", "relu"),
    }


def obstacles(model: ModelConfig) -> list[str]:
    wanted = {
        "normalization": "LayerNorm",
        "position_embedding_type": "learned_absolute",
        "linear_bias": True,
        "query_groups": model.num_attention_heads,
        "head_dim": model.hidden_size // model.num_attention_heads,
        "qk_layernorm": False,
        "norm_epsilon": _EPSILON,
    }
    found = unlike(model, **wanted)
    return found if model.activation in ("relu", "gelu") else [*found, f"activation is {model.activation}"]


def write_config(model: ModelConfig, model_type: str | None) -> dict[str, Any]:
    return {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "activation_function": {"relu": "relu", "gelu": "gelu_new"}[model.activation],
        "attention_dropout": model.attention_dropout,
        "do_layer_norm_before": True,
        "dropout": model.hidden_dropout,
        "ffn_dim": model.ffn_size,
        "hidden_size": model.hidden_size,
        "max_position_embeddings": model.num_positions,
        "num_attention_heads": model.num_attention_heads,
        "num_hidden_layers": model.num_layers,
        "tie_word_embeddings": model.tied,
        "vocab_size": model.vocab_size,
        "word_embed_proj_dim": model.hidden_size,
    }


def layout(model: ModelConfig) -> Layout:
    table = Layout(parameter_shapes(model))
    rows, hidden = table.shapes["embedding.position.weight"]
    table.add("embedding.word.weight", "model.decoder.embed_tokens.weight")
    table.add(
        "embedding.position.weight",
        "model.decoder.embed_positions.weight",
        (rows + _PADDING_ROWS, hidden),
        foreign_box=Box((_PADDING_ROWS, 0), (rows, hidden)),
    )
    for index in range(model.num_layers):
        ours, theirs = f"layers.{index}", f"model.decoder.layers.{index}"
        add_same(table, f"{ours}.norm1", f"{theirs}.self_attn_layer_norm")
        add_separate_qkv(table, model, f"{ours}.attention.qkv", f"{theirs}.self_attn.")
        add_same(table, f"{ours}.attention.out", f"{theirs}.self_attn.out_proj")
        add_same(table, f"{ours}.norm2", f"{theirs}.final_layer_norm")
        add_same(table, f"{ours}.mlp.up", f"{theirs}.fc1")
        add_same(table, f"{ours}.mlp.down", f"{theirs}.fc2")
    add_same(table, "final_norm", "model.decoder.final_layer_norm")
    if not model.tied:
        table.add("head.weight", "lm_head.weight")
    return table
