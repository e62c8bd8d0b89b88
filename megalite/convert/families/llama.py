"""Llama and what is Llama but for a flag: Mistral, Qwen2 (a bias on queries, keys and values), Qwen3 (normed heads)."""

from typing import Any

from megalite.config import ModelConfig
from megalite.convert.families._fields import Fields, unlike
from megalite.convert.families._heads import add_same, add_separate_qkv
from megalite.convert.layout import Layout
from megalite.convert.parameters import parameter_shapes
from megalite.errors import CheckpointError
from megalite.state import Box

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
BASE_PREFIX = "model."
BUFFERS = r".*\.rotary_emb\.inv_freq"

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def read_config(fields: Fields) -> dict[str, Any]:
    kind, heads = fields.model_type, fields.take("num_attention_heads")
    fields.require("hidden_act", "silu")
    _require_full_attention(fields)
    positions = fields.take("max_position_embeddings", 2048)
    hidden = fields.take("hidden_size")
    return {
        "num_layers": fields.take("num_hidden_layers"),
        "hidden_size": hidden,
        "ffn_hidden_size": fields.take("intermediate_size"),
        "num_attention_heads": heads,
        "group_query_attention": True,
        "num_query_groups": fields.take("num_key_value_heads", heads),
        "kv_channels": fields.take("head_dim", 128 if kind == "qwen3" else hidden // heads),
        "seq_length": positions,
        "max_position_embeddings": positions,
        "normalization": "RMSNorm",
        "norm_epsilon": float(fields.take("rms_norm_eps", 1e-6)),
        "swiglu": True,
        "untie_embeddings_and_output_weights": not fields.take("tie_word_embeddings", False),
        "vocab_size": fields.take("vocab_size"),
        "attention_dropout": float(fields.take("attention_dropout", 0.0)),
        "hidden_dropout": 0.0,
        "qk_layernorm": kind == "qwen3",
        **_biases(fields),
        **_rotary(fields),
    }


def _require_full_attention(fields: Fields) -> None:
    """Refuse windows of attention that are shorter than the longest sequence."""
    positions = fields.peek("max_position_embeddings", 2048)
    window = fields.take("sliding_window", None)
    fields.take("max_window_layers", None)
    windowed = fields.take("use_sliding_window", fields.model_type == "mistral")
    kinds = set(fields.take("layer_types", []))
    if (windowed and window is not None and window < positions) or kinds - {"full_attention"}:
        raise CheckpointError(
            f"config.json: sliding_window ({window}) must be null or at least max_position_embeddings ({positions}): "
            "megalite attends to the whole sequence. If no longer sequences are wanted, lower max_position_embeddings."
        )


def _biases(fields: Fields) -> dict[str, bool]:
    on_heads, on_mlp = bool(fields.take("attention_bias", False)), bool(fields.take("mlp_bias", False))
    if fields.model_type == "qwen2":
        return {"disable_bias_linear": True, "add_qkv_bias": True}
    if on_heads != on_mlp:
        raise CheckpointError(
            f"config.json: attention_bias ({on_heads}) must equal mlp_bias ({on_mlp}): megalite has a bias in every "
            "linear layer, in none, or in the query, key and value projection alone (model_type qwen2)."
        )
    return {"disable_bias_linear": not on_mlp}


def _rotary(fields: Fields) -> dict[str, Any]:
    # transformers 5 writes one field, earlier versions write two.
    parameters = {**fields.take("rope_scaling", {}), **fields.take("rope_parameters", {})}
    theta = float(parameters.pop("rope_theta", fields.take("rope_theta", 10000.0)))
    kind = parameters.pop("rope_type", parameters.pop("type", "default"))
    parameters.pop("type", None)
    common = {"position_embedding_type": "rope", "rotary_base": theta}
    fields.require("partial_rotary_factor", 1.0)
    if float(parameters.pop("partial_rotary_factor", 1.0)) != 1.0:
        raise CheckpointError("config.json: partial_rotary_factor must be 1.0 in a Llama; it is not.")
    if kind == "default" and not parameters:
        return common
    factor = float(parameters.pop("factor", 0.0))
    if kind == "linear" and not parameters:
        return {**common, "rotary_seq_len_interpolation_factor": factor}
    if kind == "llama3" and parameters == _LLAMA3:
        return {**common, "use_rope_scaling": True, "rope_scaling_factor": factor}
    raise CheckpointError(
        f"config.json: rope_scaling must be of type linear, or llama3 with {_LLAMA3}; it is {kind} with {parameters}."
    )


def obstacles(model: ModelConfig) -> list[str]:
    wanted = {
        "normalization": "RMSNorm",
        "activation": "swiglu",
        "position_embedding_type": "rope",
        "rotary_percent": 1.0,
        "rotary_interleaved": False,
    }
    found = unlike(model, **wanted)
    if model.use_rope_scaling and model.rotary_seq_len_interpolation_factor is not None:
        found.append("use_rope_scaling and rotary_seq_len_interpolation_factor are set together")
    if model.qk_layernorm and model.qkv_bias:
        found.append("qk_layernorm and a bias on queries, keys and values are set together")
    return found


def write_config(model: ModelConfig, model_type: str | None) -> dict[str, Any]:
    kind = _model_type(model, model_type)
    content = {
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": kind,
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "intermediate_size": model.ffn_size,
        "max_position_embeddings": model.num_positions,
        "num_attention_heads": model.num_attention_heads,
        "num_hidden_layers": model.num_layers,
        "num_key_value_heads": model.query_groups,
        "head_dim": model.head_dim,
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rotary_base,
        "rope_scaling": _rope_scaling(model),
        "tie_word_embeddings": model.tied,
        "vocab_size": model.vocab_size,
        "attention_dropout": model.attention_dropout,
    }
    if kind == "llama":
        content.update(attention_bias=model.linear_bias, mlp_bias=model.linear_bias)
    if kind == "qwen3":
        content.update(attention_bias=False)
    if kind.startswith("qwen"):
        content.update(use_sliding_window=False)
    if kind == "mistral":
        content.update(sliding_window=None)
    return content


def _model_type(model: ModelConfig, came_as: str | None) -> str:
    if model.qk_layernorm:
        return "qwen3"
    if model.qkv_bias and not model.linear_bias:
        return "qwen2"
    return "mistral" if came_as == "mistral" and not model.linear_bias else "llama"


def _rope_scaling(model: ModelConfig) -> dict[str, Any] | None:
    if model.use_rope_scaling:
        return {"rope_type": "llama3", "factor": model.rope_scaling_factor, **_LLAMA3}
    if model.rotary_seq_len_interpolation_factor is not None:
        return {"rope_type": "linear", "factor": model.rotary_seq_len_interpolation_factor}
    return None


def layout(model: ModelConfig) -> Layout:
    table = Layout(parameter_shapes(model))
    hidden, ffn = model.hidden_size, model.ffn_size
    table.add("embedding.word.weight", "model.embed_tokens.weight")
    for index in range(model.num_layers):
        ours, theirs = f"layers.{index}", f"model.layers.{index}"
        add_same(table, f"{ours}.norm1", f"{theirs}.input_layernorm")
        add_separate_qkv(table, model, f"{ours}.attention.qkv", f"{theirs}.self_attn.")
        add_same(table, f"{ours}.attention.out", f"{theirs}.self_attn.o_proj")
        if model.qk_layernorm:
            add_same(table, f"{ours}.attention.q_norm", f"{theirs}.self_attn.q_norm")
            add_same(table, f"{ours}.attention.k_norm", f"{theirs}.self_attn.k_norm")
        add_same(table, f"{ours}.norm2", f"{theirs}.post_attention_layernorm")
        for half, projection in enumerate(("gate_proj", "up_proj")):
            key = f"{theirs}.mlp.{projection}"
            table.add(f"{ours}.mlp.up.weight", f"{key}.weight", (ffn, hidden), box=Box((half, 0, 0), (1, ffn, hidden)))
            if model.linear_bias:
                table.add(f"{ours}.mlp.up.bias", f"{key}.bias", (ffn,), box=Box((half, 0), (1, ffn)))
        add_same(table, f"{ours}.mlp.down", f"{theirs}.mlp.down_proj")
    add_same(table, "final_norm", "model.norm")
    if not model.tied:
        table.add("head.weight", "lm_head.weight")
    return table
