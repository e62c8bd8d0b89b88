"""A Llama in a directory of Megatron-LM's torch_dist format, written by torch.distributed.checkpoint on two ranks."""

import argparse
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from tests.convert import models
from tests.convert.models import FFN, GROUPS, HEADS, HIDDEN, LAYERS, VOCABULARY, WIDTH
from tests.harness import run_world

PADDED = 128
SLOTS = {"exp_avg": 1.0, "exp_avg_sq": 2.0, "fp32_param": 3.0}
"""Slots by Megatron's names, and what their values are the parameters' multiplied with."""
SHARDED_DIMS = {"linear_qkv.weight": 1, "linear_fc1.weight": 1, "linear_proj.weight": 2, "linear_fc2.weight": 2}

ARGUMENTS = argparse.Namespace(
    num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=HEADS, kv_channels=WIDTH,
    group_query_attention=True, num_query_groups=GROUPS, seq_length=16, max_position_embeddings=16, swiglu=True,
    position_embedding_type="rope", rotary_base=50000, normalization="RMSNorm", norm_epsilon=1e-5,
    add_bias_linear=False, untie_embeddings_and_output_weights=True, padded_vocab_size=PADDED, vocab_size=VOCABULARY,
    params_dtype=torch.bfloat16, consumed_train_samples=12, attention_dropout=0.0, hidden_dropout=0.0,
)  # fmt: skip


def hugging_face_weights() -> dict[str, torch.Tensor]:
    """The weights of the model, by the names that transformers gives them."""
    return models.random_tensors(models.llama_shapes(), torch.bfloat16)


def layer_tensors(weights: dict[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    """One layer's tensors by Megatron Core's names, put together by hand."""
    theirs = f"model.layers.{index}"
    q, k, v = (weights[f"{theirs}.self_attn.{x}_proj.weight"] for x in "qkv")
    per_group = HEADS // GROUPS * WIDTH
    rows = []
    for group in range(GROUPS):
        rows.append(q[group * per_group : (group + 1) * per_group])
        rows += [x[group * WIDTH : (group + 1) * WIDTH] for x in (k, v)]
    return {
        "self_attention.linear_qkv.layer_norm_weight": weights[f"{theirs}.input_layernorm.weight"],
        "self_attention.linear_qkv.weight": torch.cat(rows),
        "self_attention.linear_proj.weight": weights[f"{theirs}.self_attn.o_proj.weight"],
        "mlp.linear_fc1.layer_norm_weight": weights[f"{theirs}.post_attention_layernorm.weight"],
        "mlp.linear_fc1.weight": torch.cat([weights[f"{theirs}.mlp.{x}_proj.weight"] for x in ("gate", "up")]),
        "mlp.linear_fc2.weight": weights[f"{theirs}.mlp.down_proj.weight"],
    }


def model_tensors(stacked: bool = True) -> dict[str, torch.Tensor]:
    """The whole model by the names of torch_dist: a tensor for all layers, or one for each."""
    weights = hugging_face_weights()

    def padded(matrix):
        return torch.cat([matrix, torch.full((PADDED - VOCABULARY, HIDDEN), 9.0, dtype=matrix.dtype)])

    tensors = {
        "embedding.word_embeddings.weight": padded(weights["model.embed_tokens.weight"]),
        "decoder.final_layernorm.weight": weights["model.norm.weight"],
        "output_layer.weight": padded(weights["lm_head.weight"]),
    }
    layers = [layer_tensors(weights, index) for index in range(LAYERS)]
    if stacked:
        tensors |= {f"decoder.layers.{name}": torch.stack([layer[name] for layer in layers]) for name in layers[0]}
    else:
        tensors |= {f"decoder.layers.{i}.{name}": layer[name] for i, layer in enumerate(layers) for name in layer}
    return tensors


def with_state(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors, and every slot of each of them."""
    state = {}
    for slot, factor in SLOTS.items():
        state |= {f"optimizer.state.{slot}.{name}": tensor.float() * factor for name, tensor in tensors.items()}
    return {**tensors, **state}


def _save(rank: int, world_size: int, tensors: dict, path: Path) -> None:
    """Matrices are cut over the ranks as tensor parallelism cuts them; what is no tensor is an object of rank 0."""
    mesh = init_device_mesh("cpu", (world_size,))
    state: dict[str, object] = {}
    for name, value in tensors.items():
        dim = next((dim for end, dim in SHARDED_DIMS.items() if name.endswith(end)), 0)
        if isinstance(value, torch.Tensor) and value.ndim > 1 and "norm" not in name:
            state[name] = DTensor.from_local(value.chunk(world_size, dim)[rank].contiguous(), mesh, [Shard(dim)])
        else:
            state[name] = value
    save_state(state, path)


def save_state(state: dict, path: Path, no_dist: bool = False) -> None:
    """Call torch.distributed.checkpoint, which warns of things that do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
        dcp.save(state, checkpoint_id=path, planner=planner, no_dist=no_dist)


def write_chunked(directory: Path, tensors: dict, common: dict | None = None, ranks: int = 2) -> Path:
    """Write ``tensors`` as iteration 3, with ``common.pt`` if its content is given. Returns the --load directory."""
    path = directory / "iter_0000003"
    if ranks == 1:
        save_state(tensors, path, no_dist=True)
    else:
        run_world(_save, ranks, tensors, path)
    (directory / "latest_checkpointed_iteration.txt").write_text("3")
    if common is not None:
        torch.save(common, path / "common.pt")
    return directory


def common_content(**more: object) -> dict:
    """What is common to all ranks, as Megatron Core 0.16 writes it."""
    groups = [{"wd_mult": 1.0, "step": 5}, {"wd_mult": 0.0, "step": 5}]
    optimizer = {"optimizer": {"param_groups": groups}, "grad_scaler": {}}
    return {"args": ARGUMENTS, "checkpoint_version": 3.0, "iteration": 3, "optimizer": optimizer, **more}
