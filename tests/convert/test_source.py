"""Changes on the way: another dtype with exact main parameters, and state that stays behind."""

import pytest
import torch

from megalite.checkpoint.piece import Piece
from megalite.convert.formats import open_checkpoint
from megalite.convert.source import Recast, WithoutOptimizer
from megalite.errors import CheckpointError
from megalite.state import Box
from tests.convert.conftest import GPT2_MODEL, save_run
from tests.convert.models import write_case

NAME = "layers.1.mlp.up.weight"


def test_float32_becomes_bfloat16_and_comes_back_exactly(trained):
    original = open_checkpoint(trained)
    half = Recast(original, "bfloat16")
    assert half.dtype(NAME) == "bfloat16" and half.dtype(f"optim.param.{NAME}") == "float32"
    assert half.config.training.bf16 and half.dtype(f"optim.exp_avg.{NAME}") == "float32"
    assert torch.equal(half.read(NAME), original.read(NAME).bfloat16())
    assert torch.equal(half.read(f"optim.param.{NAME}"), original.read(NAME))
    back = Recast(half, "float32")
    assert back.names() == original.names() and not back.config.training.bf16
    for name in original.names():
        assert torch.equal(back.read(name), original.read(name)), name


def test_a_model_without_state_gets_no_main_parameters(tmp_path):
    source = open_checkpoint(write_case(tmp_path / "in", "llama"))
    half = Recast(source, "float16")
    assert half.names() == source.names() and half.config.training.fp16
    assert torch.equal(half.read(NAME), source.read(NAME).half())


def test_main_parameters_are_the_exact_ones(tmp_path):
    run = open_checkpoint(save_run(tmp_path / "run", GPT2_MODEL, "bfloat16"))
    exact = WithoutOptimizer(Recast(run, "float32"))
    assert torch.equal(exact.read(NAME), run.read(f"optim.param.{NAME}"))
    assert not torch.equal(exact.read(NAME), run.read(NAME).float())
    assert not any(name.startswith("optim.") for name in exact.names())


def test_pieces_are_read_as_from_a_checkpoint_of_ours(tmp_path):
    source = open_checkpoint(write_case(tmp_path / "in", "gpt2"))
    whole = source.read("layers.0.attention.qkv.weight")
    box = Box((1, 1, 2, 3), (2, 2, 3, 4))
    tensor = torch.empty(box.extent, dtype=torch.float64)
    piece = Piece("layers.0.attention.qkv.weight", tuple(whole.shape), box, tensor)
    source.read_into([piece], convert=True)
    assert torch.equal(tensor, whole[1:3, 1:3, 2:5, 3:7].double())
    with pytest.raises(CheckpointError, match="qkv.weight must be .*float64.*it is .*float32"):
        source.read_into([piece])
    with pytest.raises(CheckpointError, match="must contain nothing: it does not"):
        source.read_into([Piece("nothing", (1,), Box.whole((1,)), torch.empty(1))])
