"""benchmarks/ops.py and benchmarks/attention.py: what they time as the same function is the same function."""

import pytest
import torch

from benchmarks import attention
from benchmarks.ops import CASES, turn

RANDOM = ("dropout_residual", "normal_fill")
"""Other numbers in plain torch, which has other random numbers."""


def outputs(function, inputs):
    results = function(*inputs)
    return [results] if isinstance(results, torch.Tensor) else list(results)


@pytest.mark.parametrize("name", CASES)
def test_both_versions_compute_the_same(name):
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in CASES[name].shapes]
    ours, plain = ([x.clone() for x in inputs] for _ in range(2))  # as some work in place
    if name == "adamw":
        CASES[name].ours(*ours)
        CASES[name].plain(*plain)
        ours, plain = ours[:1] + ours[2:], plain[:1] + plain[2:]  # the gradient may be overwritten
    else:
        ours, plain = outputs(CASES[name].ours, ours), outputs(CASES[name].plain, plain)
    for actual, expected in zip(ours, plain, strict=True):
        assert actual.shape == expected.shape
        if name not in RANDOM:
            scale = float(expected.abs().max())
            assert float((actual - expected).abs().max()) < 1e-5 * scale


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", ["megalite", "eager"])
def test_every_case_has_its_turn(name, version):
    turn(name, torch.float32, version, 0, 1)()


@pytest.mark.parametrize("version", attention.VERSIONS)
def test_attention_has_its_turn(version):
    attention.turn(attention.Shape(512, 64), torch.bfloat16, version, 0, 1)()


def test_both_versions_of_attention_compute_the_same():
    qkv = attention.Shape(512, 32).qkv(torch.float32)
    ours, plain = (function(qkv) for function in attention.VERSIONS.values())
    assert ours.shape == plain.shape == (512, 4, attention.WIDTH)
    assert float((ours - plain).abs().max()) < 1e-5 * float(plain.abs().max())
