"""The parameters of a GPT as its configuration has them: names and global shapes, without building anything."""

from megalite.config import ModelConfig

Shape = tuple[int, ...]


def parameter_shapes(model: ModelConfig) -> dict[str, Shape]:
    """Global shape of every parameter by canonical name, in the model's order; a tied matrix once."""
    assert model.model == "gpt", f"the parameters of a {model.model} are not known here"
    hidden = model.hidden_size
    shapes: dict[str, Shape] = {"embedding.word.weight": (model.vocab_size, hidden)}
    if model.position_embedding_type == "learned_absolute":
        shapes["embedding.position.weight"] = (model.num_positions, hidden)
    for index in range(model.num_layers):
        shapes.update({f"layers.{index}.{name}": shape for name, shape in _layer(model).items()})
    shapes.update(_norm("final_norm", hidden, model))
    if not model.tied:
        shapes["head.weight"] = (model.vocab_size, hidden)
    return shapes


def _layer(model: ModelConfig) -> dict[str, Shape]:
    hidden, heads_width = model.hidden_size, model.num_attention_heads * model.head_dim
    qkv = (model.query_groups, model.num_attention_heads // model.query_groups + 2, model.head_dim)
    up = (2, model.ffn_size) if model.activation == "swiglu" else (model.ffn_size,)
    shapes = {
        **_norm("norm1", hidden, model),
        **_linear("attention.qkv", qkv, hidden, model.qkv_bias),
        **_linear("attention.out", (hidden,), heads_width, model.linear_bias),
    }
    if model.qk_layernorm:
        shapes.update(_norm("attention.q_norm", model.head_dim, model))
        shapes.update(_norm("attention.k_norm", model.head_dim, model))
    return {
        **shapes,
        **_norm("norm2", hidden, model),
        **_linear("mlp.up", up, hidden, model.linear_bias),
        **_linear("mlp.down", (hidden,), model.ffn_size, model.linear_bias),
    }


def _linear(name: str, out_shape: Shape, in_features: int, bias: bool) -> dict[str, Shape]:
    shapes = {f"{name}.weight": (*out_shape, in_features)}
    return {**shapes, f"{name}.bias": out_shape} if bias else shapes


def _norm(name: str, size: int, model: ModelConfig) -> dict[str, Shape]:
    shapes = {f"{name}.weight": (size,)}
    return {**shapes, f"{name}.bias": (size,)} if model.normalization == "LayerNorm" else shapes
