"""Does a checkpoint in Megatron-LM's format compute the same in Megatron Core's own GPTModel? On the CPU, in float32.

Random models are written in Megatron-LM's format for one rank and loaded by ``GPTModel.load_state_dict``. Prints the
largest difference of logits, whether the parameters come in the order in which Megatron's optimizer counts them, and
whether what GPTModel saves is read back bit for bit.

Needs `pip install --no-deps megatron-core`. Megatron Core expects a GPU in a few places; they are given the CPU here.
"""

import contextlib
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.nn.functional as F

from megalite.config import Config, ModelConfig
from megalite.convert.conversion import convert
from megalite.convert.formats import load_format, open_checkpoint
from megalite.convert.options import ReadOptions, WriteOptions
from megalite.convert.parameters import parameter_shapes
from megalite.convert.source import Source
from megalite.convert.verify import logits
from megalite.errors import ConfigError
from megalite.log import echo, run_main
from megalite.state import Box

GPT2 = dict(num_layers=3, hidden_size=48, num_attention_heads=6, seq_length=16, vocab_size=101)
LLAMA = dict(
    **GPT2, ffn_hidden_size=80, normalization="RMSNorm", swiglu=True, disable_bias_linear=True,
    group_query_attention=True, num_query_groups=2, position_embedding_type="rope",
    untie_embeddings_and_output_weights=True,
)  # fmt: skip
CASES = {
    "GPT-2": GPT2,
    "GPT-2, untied": {**GPT2, "untie_embeddings_and_output_weights": True},
    "Llama, 2 groups": LLAMA,
    "Llama, tied": {**LLAMA, "untie_embeddings_and_output_weights": False},
    "Qwen2": {**LLAMA, "add_qkv_bias": True},
}


class Random(Source):
    """A model of random parameters."""

    def __init__(self, model: ModelConfig):
        self.directory, self.config, self.meta, self.extras = Path("random"), Config(model=model), {"iteration": 1}, {}
        generator = torch.Generator().manual_seed(0)
        self._tensors = {
            name: torch.randn(shape, generator=generator) * 0.1 for name, shape in parameter_shapes(model).items()
        }

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        return "float32"

    def fill(self, name: str, box: Box, out: torch.Tensor) -> None:
        out.copy_(self._tensors[name][box.inside(Box.whole(self.shape(name)))])


def main() -> None:
    warnings.filterwarnings("ignore")
    try:
        import megatron.core
    except ImportError:
        raise ConfigError("this comparison needs Megatron Core: pip install --no-deps megatron-core.") from None
    echo(f"megatron-core {megatron.core.__version__}, torch {torch.__version__}, float32")
    _pretend_that_the_cpu_is_a_gpu()
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    megatron.core.parallel_state.initialize_model_parallel(1, 1)
    for name, fields in CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            echo(f"{name:<16} {_compare(Random(ModelConfig(**fields)), Path(directory))}")
    torch.distributed.destroy_process_group()


def _pretend_that_the_cpu_is_a_gpu() -> None:
    from megatron.core.tensor_parallel import random

    torch.cuda.current_device = lambda: torch.device("cpu")
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()


def _compare(source: Source, directory: Path) -> str:
    megatron = load_format("megatron", "--save-format")
    convert(source, directory / "written", megatron, WriteOptions(transformer_impl="local"))
    path = Path("iter_0000001") / "mp_rank_00" / "model_optim_rng.pt"
    content = torch.load(directory / "written" / path, weights_only=False)
    model = _build(source.config.model, content["args"])
    model.load_state_dict({**model.state_dict(), **content["model"]})
    tokens = torch.tensor([[5, 99, 0, 100, 17, 3, 3, 64]])
    mask = torch.ones(1, 1, 8, 8, dtype=torch.bool).triu(1)
    with torch.no_grad():
        theirs = model(tokens, torch.arange(8)[None], mask)[0, :, : source.config.model.vocab_size]
    ours = logits(source, tokens)
    ordered = [name for name, _ in model.named_parameters()] == list(content["model"])
    content["model"] = model.state_dict_for_save_checkpoint()
    (directory / "again" / path).parent.mkdir(parents=True)
    torch.save(content, directory / "again" / path)
    again = open_checkpoint(directory / "again", options=ReadOptions(step=1))
    same = again.names() == source.names() and all(
        torch.equal(again.read(name), source.read(name)) for name in again.names()
    )
    difference = (theirs - ours).abs().max().item()
    return f"largest logit {ours.abs().max():.3f}, difference {difference:.2e}, order {ordered}, read back {same}"


def _build(model: ModelConfig, arguments: Any) -> torch.nn.Module:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=model.num_layers, hidden_size=model.hidden_size, num_attention_heads=model.num_attention_heads,
        num_query_groups=model.query_groups, ffn_hidden_size=model.ffn_size, kv_channels=model.head_dim,
        normalization=model.normalization, layernorm_epsilon=model.norm_epsilon, add_bias_linear=model.linear_bias,
        add_qkv_bias=model.add_qkv_bias, gated_linear_unit=model.swiglu, attention_dropout=0.0, hidden_dropout=0.0,
        activation_func=F.silu if model.swiglu else lambda x: F.gelu(x, approximate="tanh"),
        use_cpu_initialization=True, bias_activation_fusion=False, masked_softmax_fusion=False,
        bias_dropout_fusion=False, apply_rope_fusion=False,
    )  # fmt: skip
    return GPTModel(
        config=config, transformer_layer_spec=get_gpt_layer_local_spec(normalization=model.normalization),
        vocab_size=arguments.padded_vocab_size, max_sequence_length=arguments.max_position_embeddings,
        position_embedding_type=model.position_embedding_type, rotary_base=model.rotary_base,
        share_embeddings_and_output_weights=model.tied, parallel_output=False,
    ).eval()  # fmt: skip


if __name__ == "__main__":
    run_main(main)
