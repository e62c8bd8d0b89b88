import platform
import re
import subprocess

import pytest
import torch

from megalite.errors import ConfigError
from megalite.ops import matmul
from tests.nn.world import random

SHAPES = [((5, 3), 8, 4), ((5, 3), 4, 8), ((1, 1), 1, 1), ((33, 2), 17, 129), ((2, 64), 256, 512), ((0, 3), 8, 4)]
DTYPES = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2}


@pytest.fixture(params=["onednn", "torch"] if matmul._onednn_available() else ["torch"])
def library(request, monkeypatch):
    monkeypatch.setattr(matmul, "choice", lambda: matmul.Choice(request.param, request.param, "asked"))


def operands(lead, num_in, num_out, dtype):
    shapes = [(*lead, num_in), (num_out, num_in), (num_out,), (*lead, num_out), (num_out, num_in)]
    return [random(*shape, seed=seed).to(dtype) for seed, shape in enumerate(shapes)]


def close(actual, expected, dtype):
    assert actual.shape == expected.shape
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    assert float((actual.double() - expected).abs().max() if expected.numel() else 0.0) <= 4 * DTYPES[dtype] * max(
        scale, 1.0
    )


@pytest.mark.parametrize("lead, num_in, num_out", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_equal_float64(library, lead, num_in, num_out, dtype):
    x, weight, bias, grad, total = operands(lead, num_in, num_out, dtype)
    wide = [tensor.to(torch.float64, copy=True) for tensor in (x, weight, bias, grad, total)]
    close(matmul.linear(x, weight), wide[0] @ wide[1].t(), dtype)
    close(matmul.linear(x, weight, bias), wide[0] @ wide[1].t() + wide[2], dtype)
    close(matmul.input_grad(grad, weight), wide[3] @ wide[1], dtype)
    matmul.add_weight_grad(total, grad, x)
    close(total, wide[4] + torch.einsum("...o,...i->oi", wide[3], wide[0]), dtype)
    matmul.add_bias_grad(bias, grad)
    close(bias, wide[2] + wide[3].flatten(0, -2).sum(0), dtype)


def test_16_bit_gradients_are_added_in_float32(library):
    x, _, _, grad, _ = operands((5, 3), 8, 4, torch.bfloat16)
    total = torch.full((4, 8), 1000.0)
    matmul.add_weight_grad(total, grad, x)
    torch.testing.assert_close(total - 1000, torch.einsum("abo,abi->oi", grad.float(), x.float()), rtol=1e-2, atol=1e-2)


def test_operands_may_be_strided_or_expanded(library):
    x, weight, bias, grad, total = operands((5, 3), 8, 4, torch.float32)
    strided, same = x.transpose(0, 1).contiguous().transpose(0, 1), grad[:1, :1].expand_as(grad)
    torch.testing.assert_close(matmul.linear(strided, weight, bias), matmul.linear(x, weight, bias))
    torch.testing.assert_close(matmul.input_grad(same, weight), matmul.input_grad(same.contiguous(), weight))
    other = total.clone()
    matmul.add_weight_grad(total, same, strided)
    matmul.add_weight_grad(other, same.contiguous(), x)
    torch.testing.assert_close(total, other)


def test_results_may_be_written_into_inside_autograd(library):
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            return matmul.linear(x, weight)

        @staticmethod
        def backward(ctx, grad):
            return matmul.input_grad(grad, weight), None

    x, weight, *_ = operands((5, 3), 8, 4, torch.float32)
    x.requires_grad_()
    y = Linear.apply(x, weight)
    assert y.is_contiguous()
    y.add_(1).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand_as(x))


def test_choice_of_library():
    amd, zen5, intel = matmul.Cpu("AuthenticAMD", 25), matmul.Cpu("AuthenticAMD", 26), matmul.Cpu("GenuineIntel", 6)
    cases = [
        ({}, zen5, True, "onednn", "onednn"),
        ({}, amd, True, "onednn", "torch"),
        ({}, intel, True, "torch", "torch"),
        ({}, matmul.Cpu(), True, "torch", "torch"),
        ({}, zen5, False, "torch", "torch"),
        ({"MEGALITE_MATMUL": "onednn"}, intel, True, "onednn", "onednn"),
        ({"MEGALITE_MATMUL": "onednn"}, intel, False, "torch", "torch"),
        ({"MEGALITE_MATMUL": "torch"}, zen5, True, "torch", "torch"),
    ]
    for environment, cpu, available, products, weight_grads in cases:
        chosen = matmul.choose(environment, cpu, available)
        assert (chosen.products, chosen.weight_grads) == (products, weight_grads), (environment, cpu, available)


@pytest.mark.skipif(platform.machine() != "x86_64" or platform.system() != "Linux", reason="lscpu of x86 Linux")
def test_this_cpu_is_that_of_lscpu():
    facts = dict(
        line.split(":", 1) for line in subprocess.check_output(["lscpu"], text=True).splitlines() if ":" in line
    )
    assert matmul.this_cpu() == matmul.Cpu(facts["Vendor ID"].strip(), int(facts["CPU family"]))


def test_an_unknown_library_is_refused():
    with pytest.raises(ConfigError, match=re.escape("MEGALITE_MATMUL must be auto, onednn or torch; given 'mkl'")):
        matmul.choose({"MEGALITE_MATMUL": "mkl"}, matmul.Cpu(), True)
