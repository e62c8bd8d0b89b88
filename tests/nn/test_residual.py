"""The residual stream in float32 under parameters of 16 bits."""

import pytest
import torch

from megalite.models import gpt
from megalite.nn.context import LayerContext
from megalite.nn.residual import residual_dtype
from tests.models.cases import build, gpt2, llama, make_batch

STREAM = {"fp32_residual_connection": True}


def test_only_16_bit_streams_widen():
    wide, plain = gpt2(**STREAM), gpt2()
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        assert residual_dtype(plain, dtype) == dtype
        assert residual_dtype(wide, dtype) == (torch.float64 if dtype == torch.float64 else torch.float32)


def summed(model):
    """The stream after two sublayers that each add 1 to 256, and its gradient at the first layer's input."""
    ctx = LayerContext(dtype=torch.bfloat16)
    layer = gpt.units(model)[1].build(ctx, {})
    for name, param in layer.named_parameters():
        param.data.fill_(1.0 if name in ("attention.out.bias", "mlp.down.bias") else 0.0)
    hidden = torch.full((16, 3, 32), 256.0, dtype=residual_dtype(model, ctx.dtype), requires_grad=True)
    out = layer({"hidden": hidden}, make_batch(model))["hidden"]
    out.sum().backward()
    return out, hidden.grad


def test_what_16_bits_round_away_adds_up():
    out, grad = summed(gpt2(**STREAM))
    assert out.dtype == grad.dtype == torch.float32 and (out == 258.0).all() and (grad == 1.0).all()
    assert (summed(gpt2())[0] == 256.0).all(), "256 + 1 is 256 in bfloat16"


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("style", [gpt2, llama])
def test_units_hand_on_a_float32_stream_and_compute_in_16_bits(style, dropout):
    model = style(**STREAM, hidden_dropout=dropout, qk_layernorm=True)
    modules, held = build(model, LayerContext(dtype=torch.bfloat16))
    batch, carry = make_batch(model), {}
    (declared,) = gpt.carry_spec(model, 3, 1, False, torch.bfloat16).values()
    for module in modules[:-1]:
        carry = module(carry, batch)
        assert carry["hidden"].dtype == declared.dtype == torch.float32 and carry["hidden"].shape == declared.shape
    assert modules[-1].logits(carry).dtype == torch.bfloat16
    modules[-1](carry, batch)["loss_sum"].backward()
    assert all(param.dtype == param.grad.dtype == torch.bfloat16 for param in held.values())
