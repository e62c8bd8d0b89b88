"""The anchor outside megalite: the same model in plain PyTorch, with torch.optim.AdamW, follows the same loss curve."""

import numpy as np
import pytest
import torch

from benchmarks.plain_torch import PlainConfig, PlainGPT
from megalite.config import Config, ModelConfig
from megalite.data.sampler import microbatches
from tests.parity.data import RandomTokens
from tests.parity.run import gather_params, train_steps
from megalite.parallel.context import ParallelContext
from megalite.train.engine import build_engine

PLAIN = {
    "gpt2": PlainConfig("gpt2", num_layers=2, hidden_size=16, num_heads=4, seq_length=12, vocab_size=101),
    "llama": PlainConfig("llama", num_layers=2, hidden_size=32, num_heads=4, seq_length=12, vocab_size=101),
}
FLAGS = {
    "gpt2": {},
    "llama": {
        "position_embedding_type": "rope",
        "normalization": "RMSNorm",
        "swiglu": True,
        "disable_bias_linear": True,
        "untie_embeddings_and_output_weights": True,
    },
}
BATCH, STEPS = 6, 5


def _plain_model(plain: PlainConfig, params: dict[str, np.ndarray]) -> PlainGPT:
    """A plain model with the parameters of megalite's."""
    model = PlainGPT(plain).double()
    state = {}
    for name, values in params.items():
        value = torch.from_numpy(values)
        if ".qkv." in name:  # (heads, 3, head dim, ...) here, (3, heads, head dim, ...) there
            value = value.transpose(0, 1).reshape(-1, *value.shape[3:])
        elif ".up." in name and plain.style == "llama":
            value = value.reshape(-1, value.shape[-1])
        name = name.replace("layers.", "blocks.").replace("embedding.", "").replace("final_norm", "norm")
        state[name.replace("attention.", "").replace("mlp.", "")] = value
    if plain.style == "gpt2":
        state["head.weight"] = state["word.weight"]
    model.load_state_dict(state)
    return model


def _plain_losses(plain: PlainConfig, model: PlainGPT) -> list[float]:
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, lr=1.0)
    data = RandomTokens(plain.seq_length, plain.vocab_size)
    losses = []
    for step in range(STEPS):
        (numbers,) = microbatches(step * BATCH, BATCH, BATCH, 0, 1)
        samples = [data[number] for number in numbers]
        tokens, labels, mask = (
            torch.from_numpy(np.stack([sample[key] for sample in samples])) for key in ("tokens", "labels", "loss_mask")
        )
        # The plain model's loss is a mean over all tokens; labels of -100 leave the mean to the unmasked ones.
        loss = model(tokens, torch.where(mask > 0, labels, -100))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (step + 1)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("style", ["gpt2", "llama"])
def test_megalite_follows_the_plain_model(style):
    plain = PLAIN[style]
    sizes = ModelConfig(
        num_layers=2,
        hidden_size=plain.hidden_size,
        num_attention_heads=4,
        seq_length=12,
        ffn_hidden_size=plain.ffn_size,
    )
    config = Config(model=sizes).replace(
        vocab_size=plain.vocab_size,
        fp64=True,
        global_batch_size=BATCH,
        micro_batch_size=2,
        clip_grad=0.5,
        num_workers=0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        lr=1.0,
        train_iters=STEPS,
        **FLAGS[style],
    )
    engine = build_engine(config, ParallelContext.single())
    model = _plain_model(plain, gather_params(engine))
    run = train_steps(engine, STEPS)
    # The plain model takes its loss in float32.
    np.testing.assert_allclose(run.losses, _plain_losses(plain, model), rtol=2e-6)
    assert run.losses[-1] != pytest.approx(run.losses[0], rel=1e-3)
