"""``--no-..-fusion``: the kernels in question are not called, and the numbers stay what they are."""

import dataclasses

import pytest
import torch

from megalite.config import Config, ModelConfig
from megalite.config.cli import parse
from megalite.nn.context import Fusions
from megalite.ops import kernels, matmul
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.train.engine import build_engine
from megalite.train.step import train_step

GPT2 = {"attention_backend": "unfused", "hidden_dropout": 0.1}
LLAMA = {"swiglu": True, "position_embedding_type": "rope", "normalization": "RMSNorm"}
CASES = {
    "masked_softmax": (GPT2, "softmax_forward"),
    "bias_gelu": (GPT2, "bias_gelu_forward"),
    "bias_swiglu": (LLAMA, "swiglu_forward"),
    "bias_dropout": (GPT2, "dropout_residual_forward"),
    "rope": (LLAMA, "rotary"),
    "cross_entropy_loss": (LLAMA, "cross_entropy_gradient"),
}


def step(style, **flags):
    """Gradient norm of one step of a small model."""
    model = ModelConfig(num_layers=2, hidden_size=32, num_attention_heads=4, seq_length=16)
    config = Config(model=model).replace(
        vocab_size=50, micro_batch_size=2, global_batch_size=2, train_iters=1, lr=1e-3, attention_dropout=0.0,
        **{"hidden_dropout": 0.0, **style}, **flags,
    )  # fmt: skip
    engine, dice = build_engine(config, ParallelContext.single()), torch.Generator().manual_seed(0)
    batch = {
        "tokens": torch.randint(50, (2, 16), generator=dice),
        "labels": torch.randint(50, (2, 16), generator=dice),
        "loss_mask": torch.ones(2, 16),
        "position_ids": torch.arange(16).repeat(2, 1),
        "sample_ids": torch.arange(2),
    }
    return train_step(engine, make_scaler(config.training), [batch], lr=1e-3, weight_decay=0.0).grad_norm


@pytest.fixture
def called(monkeypatch):
    """Names of the kernels that were called."""
    names, call = set(), kernels.Kernels.__call__
    monkeypatch.setattr(
        kernels.Kernels, "__call__", lambda self, name, *args: names.add(name) or call(self, name, *args)
    )
    return names


def test_there_is_a_case_for_every_fusion():
    assert {field.name for field in dataclasses.fields(Fusions)} == {*CASES, "gradient_accumulation"}


def test_the_flags_of_megatron_switch_them_off():
    model = "--num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8".split()
    names = [field.name for field in dataclasses.fields(Fusions)]
    off = parse([*model, *(f"--no-{name.replace('_', '-')}-fusion" for name in names)]).training
    assert [getattr(off, f"{name}_fusion") for name in names] == [False] * len(names)
    assert parse([*model, "--cross-entropy-loss-fusion"]).training.cross_entropy_loss_fusion


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_can_be_switched_off(native_module, name, called):
    style, kernel = CASES[name]
    on = step(style)
    assert kernel in called
    called.clear()
    assert step(style, **{f"{name}_fusion": False}) == pytest.approx(on, rel=1e-5)
    assert kernel not in called and "adamw" in called


def test_weight_gradients_can_be_made_apart(monkeypatch):
    given, add = [], matmul.add_weight_grad
    monkeypatch.setattr(matmul, "add_weight_grad", lambda *args: given.extend(args[3:]) or add(*args))
    norms = [step(LLAMA, gradient_accumulation_fusion=fused) for fused in (True, False)]
    assert given == [True] * 8 + [False] * 8 and norms[0] == pytest.approx(norms[1], rel=1e-5)
