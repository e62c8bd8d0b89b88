"""A checkpoint of a run, with optimizer state, as training writes it."""

import zlib
from pathlib import Path

import pytest
import torch

from megalite.checkpoint.manager import CheckpointManager
from megalite.checkpoint.piece import Piece
from megalite.config import CheckpointConfig, Config, ModelConfig
from megalite.config.dump import to_yaml
from megalite.convert.parameters import parameter_shapes
from megalite.parallel.group import Group
from megalite.state import Box

META = {
    "iteration": 5,
    "consumed_samples": 40,
    "updated_samples": 40,
    "num_updates": 5,
    "loss_scaler": {},
    "data_fingerprint": "abc",
}
GPT2_MODEL = dict(
    num_layers=4,
    hidden_size=24,
    ffn_hidden_size=40,
    num_attention_heads=4,
    seq_length=16,
    vocab_size=101,
    hidden_dropout=0.1,
)
LLAMA_MODEL = dict(
    **{**GPT2_MODEL, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    normalization="RMSNorm",
    swiglu=True,
    disable_bias_linear=True,
    group_query_attention=True,
    num_query_groups=2,
    position_embedding_type="rope",
    untie_embeddings_and_output_weights=True,
)


def save_run(
    directory: Path,
    model: dict,
    dtype: str = "float32",
    slots: tuple[str, ...] = ("exp_avg", "exp_avg_sq"),
    rule: str = "adam",
) -> Path:
    """Write what a run of ``model`` would save after five steps, with other values in every tensor."""
    config = Config(model=ModelConfig(**model)).replace(bf16=dtype == "bfloat16", optimizer=rule)
    pieces = []
    for name, shape in parameter_shapes(config.model).items():
        main = _values(name, shape)
        state = {slot: _values(f"{slot} {name}", shape).abs() for slot in slots}
        if dtype != "float32":
            state["param"] = main
        for full, tensor in (
            (name, main.to(getattr(torch, dtype))),
            *((f"optim.{slot}.{name}", t) for slot, t in state.items()),
        ):
            pieces.append(Piece(full, shape, Box.whole(shape), tensor))
    manager = CheckpointManager(CheckpointConfig(save=str(directory)), Group.single("world"))
    manager.save(5, pieces, META, to_yaml(config))
    manager.close()
    return directory


def _values(seed: str, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    return torch.randn(shape, generator=generator) * 0.2


@pytest.fixture
def trained(tmp_path) -> Path:
    """The --save directory of a GPT-2 run in float32 with Adam."""
    return save_run(tmp_path / "trained", GPT2_MODEL)
