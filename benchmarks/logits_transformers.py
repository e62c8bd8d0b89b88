"""Does a converted model compute what transformers computes? Random models of each family, in float32.

Each is saved by transformers, converted to megalite, on to Megatron-LM's format for 2 x 2 ranks where it can be, back
to megalite and back to a Hugging Face directory. Prints the largest logit, the largest difference between megalite's
logits and transformers', and whether the last directory holds the first one's tensors bit for bit.

Needs `pip install transformers`.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from megalite.convert.command import main as convert
from megalite.convert.formats import open_checkpoint
from megalite.convert.verify import logits, sample_tokens
from megalite.errors import ConfigError
from megalite.log import echo, run_main

COMMON = dict(
    vocab_size=1031,
    hidden_size=96,
    num_attention_heads=6,
    num_hidden_layers=4,
    intermediate_size=160,
    max_position_embeddings=64,
)
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
)
GPT2 = dict(vocab_size=1031, n_embd=96, n_layer=4, n_head=6, n_positions=64)
OPT = dict(
    vocab_size=1031, hidden_size=96, num_hidden_layers=4, num_attention_heads=6, ffn_dim=160,
    max_position_embeddings=64, word_embed_proj_dim=96,
)  # fmt: skip
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GPT-2", "GPT2", GPT2),
    ("GPT-2, untied", "GPT2", {**GPT2, "tie_word_embeddings": False}),
    ("Llama, 2 groups", "Llama", {**COMMON, "num_key_value_heads": 2}),
    ("Llama, tied, biases", "Llama", {**COMMON, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    ("Llama 3 frequencies", "Llama", {**COMMON, "num_key_value_heads": 2, "rope_theta": 5e5, "rope_scaling": LLAMA3}),
    ("Mistral", "Mistral", {**COMMON, "num_key_value_heads": 2, "sliding_window": None}),
    ("Qwen2", "Qwen2", {**COMMON, "num_key_value_heads": 2}),
    ("Qwen3", "Qwen3", {**COMMON, "num_key_value_heads": 2, "head_dim": 16}),
    ("OPT", "OPT", OPT),
)


def main() -> None:
    try:
        import transformers
    except ImportError:
        raise ConfigError("this comparison needs transformers: pip install transformers.") from None
    transformers.logging.set_verbosity_error()
    echo(f"transformers {transformers.__version__}, torch {torch.__version__}, float32")
    for name, kind, fields in CASES:
        heads = {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM")
        torch.manual_seed(0)
        model = getattr(transformers, heads)(getattr(transformers, f"{kind}Config")(**fields)).eval()
        with tempfile.TemporaryDirectory() as directory:
            echo(f"{name:<20} {_compare(model, Path(directory), through_megatron=kind != 'OPT')}")


def _compare(model: torch.nn.Module, directory: Path, through_megatron: bool) -> str:
    _disturb(model)
    model.save_pretrained(directory / "first")
    tokens, _ = sample_tokens(open_checkpoint(directory / "first"))
    with torch.no_grad():
        theirs = model(tokens).logits[0]
    chain: list[tuple[str, ...]] = [("megalite",)]
    if through_megatron:
        cut = ("--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2")
        chain += [("megatron", *cut), ("megalite",)]
    differences, previous = [], directory / "first"
    for number, (save_format, *options) in enumerate([*chain, ("huggingface",)]):
        following = directory / str(number)
        convert(["--load-dir", str(previous), "--save-dir", str(following), "--save-format", save_format, *options])
        differences.append((logits(open_checkpoint(following), tokens) - theirs).abs().max())
        previous = following
    first, last = load_file(directory / "first" / "model.safetensors"), load_file(previous / "model.safetensors")
    same = first.keys() == last.keys() and all(torch.equal(first[key], last[key]) for key in first)
    difference = torch.stack(differences).max()
    tensors = "bit-identical" if same else "NOT THE SAME"
    return f"largest logit {theirs.abs().max():.3f}, difference {difference:.2e}, {tensors} after the round trip"


def _disturb(model: torch.nn.Module) -> None:
    """Give biases and norms, which begin as zeros and ones, values that tell them apart; OPT's rows of padding stay
    zero."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
        elif name.endswith("decoder.embed_positions.weight"):
            parameter.data[:2] = 0


if __name__ == "__main__":
    run_main(main)
