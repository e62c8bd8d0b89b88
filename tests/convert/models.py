"""Tiny models in the directories of other programs, written by hand: no library made them."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

VOCABULARY = 101  # A prime: no tensor-parallel size divides it.
HIDDEN, HEADS, GROUPS, WIDTH, FFN, LAYERS, POSITIONS = 24, 4, 2, 6, 40, 4, 16

GPT2 = {
    "model_type": "gpt2",
    "n_embd": HIDDEN,
    "n_head": HEADS,
    "n_layer": LAYERS,
    "n_positions": POSITIONS,
    "n_inner": FFN,
    "vocab_size": VOCABULARY,
    "activation_function": "gelu_new",
    "eos_token_id": 100,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
}
OPT = {
    "model_type": "opt",
    "hidden_size": HIDDEN,
    "ffn_dim": FFN,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": POSITIONS,
    "word_embed_proj_dim": HIDDEN,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "vocab_size": VOCABULARY,
}


def _linear(name: str, outputs: int, inputs: int, bias: bool = True) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), **({f"{name}.bias": (outputs,)} if bias else {})}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}


def gpt2_shapes(tied: bool = True) -> dict[str, tuple[int, ...]]:
    shapes = {"transformer.wte.weight": (VOCABULARY, HIDDEN), "transformer.wpe.weight": (POSITIONS, HIDDEN)}
    for index in range(LAYERS):
        layer = f"transformer.h.{index}"
        shapes |= {**_norm(f"{layer}.ln_1"), **_norm(f"{layer}.ln_2")}
        conv1d = (
            ("attn.c_attn", HIDDEN, 3 * HIDDEN),
            ("attn.c_proj", HIDDEN, HIDDEN),
            ("mlp.c_fc", HIDDEN, FFN),
            ("mlp.c_proj", FFN, HIDDEN),
        )
        for name, inputs, outputs in conv1d:
            shapes |= {f"{layer}.{name}.weight": (inputs, outputs), f"{layer}.{name}.bias": (outputs,)}
    shapes |= _norm("transformer.ln_f")
    return shapes if tied else {**shapes, "lm_head.weight": (VOCABULARY, HIDDEN)}


def llama_shapes(tied: bool = False, qkv_bias: bool = False) -> dict[str, tuple[int, ...]]:
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for index in range(LAYERS):
        layer = f"model.layers.{index}"
        shapes |= {f"{layer}.input_layernorm.weight": (HIDDEN,), f"{layer}.post_attention_layernorm.weight": (HIDDEN,)}
        for name, outputs in (("q", HEADS * WIDTH), ("k", GROUPS * WIDTH), ("v", GROUPS * WIDTH)):
            shapes |= _linear(f"{layer}.self_attn.{name}_proj", outputs, HIDDEN, qkv_bias)
        shapes |= _linear(f"{layer}.self_attn.o_proj", HIDDEN, HEADS * WIDTH, False)
        shapes |= _linear(f"{layer}.mlp.gate_proj", FFN, HIDDEN, False) | _linear(
            f"{layer}.mlp.up_proj", FFN, HIDDEN, False
        )
        shapes |= _linear(f"{layer}.mlp.down_proj", HIDDEN, FFN, False)
    return shapes if tied else {**shapes, "lm_head.weight": (VOCABULARY, HIDDEN)}


def opt_shapes() -> dict[str, tuple[int, ...]]:
    base = "model.decoder"
    shapes = {
        f"{base}.embed_tokens.weight": (VOCABULARY, HIDDEN),
        f"{base}.embed_positions.weight": (POSITIONS + 2, HIDDEN),
    }
    for index in range(LAYERS):
        layer = f"{base}.layers.{index}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _linear(f"{layer}.self_attn.{name}", HIDDEN, HIDDEN)
        shapes |= _linear(f"{layer}.fc1", FFN, HIDDEN) | _linear(f"{layer}.fc2", HIDDEN, FFN)
        shapes |= _norm(f"{layer}.self_attn_layer_norm") | _norm(f"{layer}.final_layer_norm")
    return shapes | _norm(f"{base}.final_layer_norm")


def random_tensors(
    shapes: dict[str, tuple[int, ...]], dtype: torch.dtype = torch.float32, std: float = 0.2
) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {name: (torch.randn(shape, generator=generator) * std).to(dtype) for name, shape in shapes.items()}


def write_model(directory: Path, config: dict, tensors: dict[str, torch.Tensor]) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors")
    return directory


CASES = {
    "gpt2": (GPT2, gpt2_shapes()),
    "gpt2 untied": ({**GPT2, "tie_word_embeddings": False}, gpt2_shapes(tied=False)),
    "llama": (LLAMA, llama_shapes()),
    "llama tied": ({**LLAMA, "tie_word_embeddings": True}, llama_shapes(tied=True)),
    "qwen2": ({**LLAMA, "model_type": "qwen2"}, llama_shapes(qkv_bias=True)),
    "opt": (OPT, opt_shapes()),
    "opt untied": ({**OPT, "tie_word_embeddings": False}, {**opt_shapes(), "lm_head.weight": (VOCABULARY, HIDDEN)}),
}


def write_case(directory: Path, name: str, dtype: torch.dtype = torch.float32) -> Path:
    """A directory with the model ``name`` of :data:`CASES`."""
    config, shapes = CASES[name]
    tensors = random_tensors(shapes, dtype)
    if name.startswith("opt"):
        tensors["model.decoder.embed_positions.weight"][:2] = 0  # The rows of padding.
    return write_model(directory, config, tensors)


def read_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """All tensors of a directory, whatever the number of its files."""
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    """Same names, dtypes and bits."""
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype and torch.equal(tensor, second[name]), name
