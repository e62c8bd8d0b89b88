"""Training steps on the device, with the kernels and without."""

import pytest
import torch

from megalite.config import Config, ModelConfig
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.train.engine import build_engine
from megalite.train.step import train_step

STYLES = {
    "gpt2": {},
    "llama": {
        "position_embedding_type": "rope",
        "normalization": "RMSNorm",
        "swiglu": True,
        "disable_bias_linear": True,
        "untie_embeddings_and_output_weights": True,
    },
}
STEPS, BATCH, SEQUENCE, VOCAB = 8, 4, 128, 512


def losses(style: str, device: str, **settings) -> list[float]:
    """Losses of a few steps on one batch."""
    model = ModelConfig(num_layers=3, hidden_size=256, num_attention_heads=4, seq_length=SEQUENCE)
    run = Config(model=model).replace(
        vocab_size=VOCAB,
        micro_batch_size=BATCH,
        global_batch_size=BATCH,
        hidden_dropout=0.1,
        attention_dropout=0.0,
        train_iters=STEPS,
        lr=1e-3,
        **STYLES[style],
        **settings,
    )
    engine, scaler = build_engine(run, ParallelContext.single(device)), make_scaler(run.training)
    text = torch.randint(VOCAB, (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(0))
    batch = {
        "tokens": text[:, :-1].contiguous(),
        "labels": text[:, 1:].contiguous(),
        "loss_mask": torch.ones(BATCH, SEQUENCE),
        "position_ids": torch.arange(SEQUENCE).repeat(BATCH, 1),
        "sample_ids": torch.arange(BATCH),
    }
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    return [train_step(engine, scaler, [batch], lr=1e-3, weight_decay=0.1).loss for _ in range(STEPS)]


@pytest.mark.parametrize("style", STYLES)
def test_float32_follows_the_cpu(style):
    """Initial weights and dropout are the same bits there; the rest is rounding."""
    assert losses(style, "cuda") == pytest.approx(losses(style, "cpu"), rel=2e-3)


@pytest.mark.parametrize("style", STYLES)
def test_kernels_change_rounding_only(style, monkeypatch):
    with_kernels = losses(style, "cuda", bf16=True)
    monkeypatch.setenv("MEGALITE_CUDA", "0")
    assert with_kernels == pytest.approx(losses(style, "cuda", bf16=True), rel=1e-2)
    assert with_kernels[-1] < with_kernels[0] - 0.5
