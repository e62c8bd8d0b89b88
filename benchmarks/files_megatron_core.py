"""Is what Megatron Core itself writes read right? Its torch_dist and its torch format, optimizer state included.

Four processes, 2-way tensor by 2-way pipeline, build Megatron Core's GPTModel, make a step of its own optimizer in
bfloat16, and write the very same state twice: by ``dist_checkpointing`` and as files of ranks. Megalite reads both by
different rules, so that agreement bit for bit says that both are understood. Prints how many tensors agree.

Needs `pip install --no-deps megatron-core`. Megatron Core expects a GPU in many places; they are given the CPU here.
"""

import argparse
import contextlib
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

from megalite.convert.formats import open_checkpoint
from megalite.errors import ConfigError
from megalite.log import echo, run_main

TENSOR, PIPELINE = 2, 2
GPT2 = dict(swiglu=False, normalization="LayerNorm", position_embedding_type="learned_absolute", num_query_groups=4)
LLAMA = dict(swiglu=True, normalization="RMSNorm", position_embedding_type="rope", num_query_groups=2)
CASES = {
    "GPT-2": {**GPT2, "untie_embeddings_and_output_weights": False},
    "GPT-2, untied": {**GPT2, "untie_embeddings_and_output_weights": True},
    "Llama, 2 groups": {**LLAMA, "untie_embeddings_and_output_weights": True},
}


def main() -> None:
    try:
        import megatron.core
    except ImportError:
        raise ConfigError("this comparison needs Megatron Core: pip install --no-deps megatron-core.") from None
    echo(f"megatron-core {megatron.core.__version__}, torch {torch.__version__}, bfloat16, {TENSOR} x {PIPELINE} ranks")
    for name, fields in CASES.items():
        for distributed in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                arguments = (_arguments(**fields), distributed, Path(directory))
                torch.multiprocessing.spawn(_write, arguments, nprocs=TENSOR * PIPELINE)
                kind = "distributed optimizer" if distributed else "plain optimizer"
                echo(f"{name:<16} {kind:<22} {_compare(Path(directory))}")


def _arguments(**fields: Any) -> argparse.Namespace:
    """What Megatron-LM would keep of its command line."""
    bias = not fields["swiglu"]
    return argparse.Namespace(
        num_layers=4, hidden_size=24, ffn_hidden_size=40, num_attention_heads=4, kv_channels=6, seq_length=16,
        max_position_embeddings=16, add_bias_linear=bias, padded_vocab_size=256, vocab_size=101, norm_epsilon=1e-5,
        group_query_attention=fields["num_query_groups"] < 4, params_dtype=torch.bfloat16, consumed_train_samples=8,
        attention_dropout=0.0, hidden_dropout=0.0, overlap_grad_reduce=False, **fields,
    )  # fmt: skip


def _write(rank: int, arguments: argparse.Namespace, distributed: bool, directory: Path) -> None:
    """One rank: a model, a step, and both formats."""
    warnings.filterwarnings("ignore")
    _pretend_that_the_cpu_is_a_gpu()
    dist.init_process_group("gloo", init_method=f"file://{directory}/ranks", rank=rank, world_size=TENSOR * PIPELINE)
    from megatron.core import dist_checkpointing, parallel_state

    parallel_state.initialize_model_parallel(TENSOR, PIPELINE)
    model, optimizer = _step(arguments, distributed)
    common = {"args": arguments, "checkpoint_version": 3.0, "iteration": 3}
    sharded = model.sharded_state_dict(metadata={})
    metadata = {"distrib_optim_sharding_type": "fully_reshardable", "chained_optim_avoid_prefix": True}
    state = optimizer.sharded_state_dict(sharded, metadata=metadata)
    path = directory / "torch_dist"
    if rank == 0:
        path.mkdir()
    dist.barrier()
    dist_checkpointing.save({**common, "model": sharded, "optimizer": state}, str(path))
    folder = directory / "torch" / f"mp_rank_{rank % TENSOR:02d}_{rank // TENSOR:03d}"
    folder.mkdir(parents=True)
    weights = model.state_dict_for_save_checkpoint()
    content = {**common, "model": weights, "optimizer": optimizer.state_dict()}
    torch.save(content, folder / "model_optim_rng.pt")
    if distributed:
        optimizer.save_parameter_state(str(folder / "distrib_optim.pt"))
    dist.barrier()
    dist.destroy_process_group()


def _step(arguments: argparse.Namespace, distributed: bool) -> tuple[torch.nn.Module, Any]:
    """A model and its optimizer after one update, by gradients that are equal on all copies of a parameter."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    config, model = _build(arguments)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.1)  # Zeros and ones would prove little.
    options = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=distributed)
    wrapped = DistributedDataParallel(config, options, model)
    precision = {"bf16": True, "params_dtype": torch.bfloat16, "use_distributed_optimizer": distributed}
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, **precision), [wrapped])
    for name, parameter in model.named_parameters():
        is_copy = name == "output_layer.weight" and not arguments.untie_embeddings_and_output_weights
        source = torch.Generator().manual_seed(dist.get_rank() % TENSOR if is_copy or "word" in name else 7)
        parameter.main_grad.copy_(torch.randn(parameter.shape, generator=source))
    inner = optimizer.chained_optimizers[0]
    inner.prepare_grads()
    inner.step_with_ready_grads()
    return model, optimizer


def _build(arguments: argparse.Namespace) -> tuple[Any, torch.nn.Module]:
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    torch.manual_seed(0)
    config = TransformerConfig(
        num_layers=4, hidden_size=24, ffn_hidden_size=40, num_attention_heads=4, attention_dropout=0.0,
        hidden_dropout=0.0, num_query_groups=arguments.num_query_groups, normalization=arguments.normalization,
        add_bias_linear=arguments.add_bias_linear, gated_linear_unit=arguments.swiglu,
        activation_func=F.silu if arguments.swiglu else F.gelu, use_cpu_initialization=True,
        bias_activation_fusion=False, masked_softmax_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False,
        bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, tensor_model_parallel_size=TENSOR,
        pipeline_model_parallel_size=PIPELINE,
    )  # fmt: skip
    stage = parallel_state.get_pipeline_model_parallel_rank()
    model = GPTModel(
        config=config, transformer_layer_spec=get_gpt_layer_local_spec(normalization=arguments.normalization),
        vocab_size=256, max_sequence_length=16, position_embedding_type=arguments.position_embedding_type,
        share_embeddings_and_output_weights=not arguments.untie_embeddings_and_output_weights,
        pre_process=stage == 0, post_process=stage == PIPELINE - 1,
    )  # fmt: skip
    return config, model.bfloat16()


def _compare(directory: Path) -> str:
    chunked, cut = open_checkpoint(directory / "torch_dist"), open_checkpoint(directory / "torch")
    if chunked.names() != cut.names():
        return f"NOT THE SAME NAMES: {sorted(set(chunked.names()) ^ set(cut.names()))}"
    differing = [name for name in cut.names() if not torch.equal(chunked.read(name), cut.read(name))]
    main = [name for name in cut.names() if name.startswith("optim.param.")]
    rounded = sum(torch.equal(cut.read(n).bfloat16(), cut.read(n.removeprefix("optim.param."))) for n in main)
    agreed = f"{len(cut.names()) - len(differing)} of {len(cut.names())} tensors agree"
    return f"{agreed}, {rounded} of {len(main)} main parameters round to the model's {differing or ''}"


def _pretend_that_the_cpu_is_a_gpu() -> None:
    from megatron.core.tensor_parallel import random

    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *arguments: None
    torch.Tensor.cuda = lambda self, *arguments, **options: self
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, *a, **k: kind(self, *a, **k) if a or k else kind(self).replace(".", ".cuda.", 1)
    for name in ("tensor", "zeros", "empty", "full", "ones", "zeros_like"):
        setattr(torch, name, _on_the_cpu(getattr(torch, name)))


def _on_the_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*arguments: Any, **options: Any) -> torch.Tensor:
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        return make(*arguments, **options)

    return made


if __name__ == "__main__":
    run_main(main)
