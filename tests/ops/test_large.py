"""Outputs beyond the size from which kernels write past the caches: each row is what it is in a small tensor."""

import pytest
import torch

from megalite.ops.bias_gelu import bias_gelu
from megalite.ops.dropout_residual import Mask, dropout_residual
from megalite.ops.layer_norm import layer_norm
from megalite.ops.rms_norm import rms_norm
from megalite.ops.softmax import scaled_causal_softmax
from megalite.ops.squared_relu import squared_relu
from megalite.ops.swiglu import swiglu
from tests.ops.truth import randn

ROWS, COLS = 4200, 2048
VECTOR = torch.linspace(-1, 1, COLS)


def dropped(x):
    return dropout_residual(x, x.detach(), None, Mask(1, "large", torch.zeros(len(x), dtype=torch.int64), 0.5))


OPS = {
    "rms_norm": lambda x: rms_norm(x, VECTOR.to(x.dtype), 1e-5),
    "layer_norm": lambda x: layer_norm(x, VECTOR.to(x.dtype), VECTOR.to(x.dtype), 1e-5),
    "bias_gelu": lambda x: bias_gelu(x, VECTOR.to(x.dtype)),
    "squared_relu": lambda x: squared_relu(x, VECTOR.to(x.dtype)),
    "swiglu": swiglu,
    "softmax": lambda x: scaled_causal_softmax(x.view(-1, 2, COLS), 1.0).view_as(x),
    "dropout_residual": dropped,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_rows_of_a_large_tensor(isa, op, dtype):
    part = randn(10, COLS, dtype=dtype)
    large, small = part.repeat(ROWS // 10, 1), part
    assert large.nbytes > 16 << 20

    def results(x):
        x = x.clone().requires_grad_()
        y = OPS[op](x)
        (grad,) = torch.autograd.grad(y, [x], y.detach() * 0.5)
        return y.detach(), grad

    for of_large, of_small in zip(results(large), results(small)):
        assert torch.equal(of_large.view(ROWS // 10, 10, -1), of_small.expand(ROWS // 10, -1, -1))
