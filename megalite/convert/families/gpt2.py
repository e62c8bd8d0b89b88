"""GPT-2. Its linear layers (Conv1D) keep matrices as (inputs, outputs), queries, keys and values side by side."""

from typing import Any

from megalite.config import ModelConfig
from megalite.convert.families._fields import Fields, activation, unlike
from megalite.convert.families._heads import add_same
from megalite.convert.layout import Layout
from megalite.convert.parameters import parameter_shapes

MODEL_TYPES = ("gpt2",)
BASE_PREFIX = "transformer."
BUFFERS = r".*\.attn\.(bias|masked_bias)"


def read_config(fields: Fields) -> dict[str, Any]:
    for name, *allowed in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
    ):
        fields.require(name, *allowed)
    for name in ("reorder_and_upcast_attn", "n_ctx", *(f"summary_{which}" for which in _SUMMARY)):
        fields.take(name, None)  # Precision of the softmax, an older name of n_positions, heads for other tasks.
    hidden, positions = fields.take("n_embd"), fields.take("n_positions", 1024)
    dropout = float(fields.take("resid_pdrop", 0.1))
    fields.require("embd_pdrop", dropout)
    return {
        "num_layers": fields.take("n_layer"),
        "hidden_size": hidden,
        "ffn_hidden_size": fields.take("n_inner", 4 * hidden),
        "num_attention_heads": fields.take("n_head"),
        "seq_length": positions,
        "max_position_embeddings": positions,
        "norm_epsilon": float(fields.take("layer_norm_epsilon", 1e-5)),
        "untie_embeddings_and_output_weights": not fields.take("tie_word_embeddings", True),
        "vocab_size": fields.take("vocab_size"),
        "attention_dropout": float(fields.take("attn_pdrop", 0.1)),
        "hidden_dropout": dropout,
        **activation(fields, "activation_function", "gelu_new"),
    }


_SUMMARY = ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")


def obstacles(model: ModelConfig) -> list[str]:
    wanted = {
        "normalization": "LayerNorm",
        "activation": "gelu",
        "position_embedding_type": "learned_absolute",
        "linear_bias": True,
        "query_groups": model.num_attention_heads,
        "head_dim": model.hidden_size // model.num_attention_heads,
        "qk_layernorm": False,
    }
    return unlike(model, **wanted)


def write_config(model: ModelConfig, model_type: str | None) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "attn_pdrop": model.attention_dropout,
        "embd_pdrop": model.hidden_dropout,
        "layer_norm_epsilon": model.norm_epsilon,
        "n_embd": model.hidden_size,
        "n_head": model.num_attention_heads,
        "n_inner": model.ffn_size,
        "n_layer": model.num_layers,
        "n_positions": model.num_positions,
        "resid_pdrop": model.hidden_dropout,
        "tie_word_embeddings": model.tied,
        "vocab_size": model.vocab_size,
    }


def layout(model: ModelConfig) -> Layout:
    table = Layout(parameter_shapes(model))
    table.add("embedding.word.weight", "transformer.wte.weight")
    table.add("embedding.position.weight", "transformer.wpe.weight")
    for index in range(model.num_layers):
        ours, theirs = f"layers.{index}", f"transformer.h.{index}"
        add_same(table, f"{ours}.norm1", f"{theirs}.ln_1")
        _add_qkv(table, model, f"{ours}.attention.qkv", f"{theirs}.attn.c_attn")
        _add_transposed(table, f"{ours}.attention.out", f"{theirs}.attn.c_proj")
        add_same(table, f"{ours}.norm2", f"{theirs}.ln_2")
        _add_transposed(table, f"{ours}.mlp.up", f"{theirs}.mlp.c_fc")
        _add_transposed(table, f"{ours}.mlp.down", f"{theirs}.mlp.c_proj")
    add_same(table, "final_norm", "transformer.ln_f")
    if not model.tied:
        table.add("head.weight", "lm_head.weight")
    return table


def _add_qkv(table: Layout, model: ModelConfig, name: str, key: str) -> None:
    hidden, heads, width = model.hidden_size, model.num_attention_heads, model.head_dim
    outputs = 3 * heads * width
    table.add(f"{name}.weight", f"{key}.weight", (hidden, outputs), split=(hidden, 3, heads, width), order=(2, 1, 3, 0))
    table.add(f"{name}.bias", f"{key}.bias", (outputs,), split=(3, heads, width), order=(1, 0, 2))


def _add_transposed(table: Layout, name: str, key: str) -> None:
    outputs, inputs = table.shapes[f"{name}.weight"]
    table.add(f"{name}.weight", f"{key}.weight", split=(inputs, outputs), order=(1, 0))
    table.add(f"{name}.bias", f"{key}.bias")
