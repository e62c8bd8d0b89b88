"""benchmarks/gpu.py, as far as it runs without a GPU: its cases by emulation, its training run on the CPU."""

import pytest
import torch
from benchmarks import gpu
from tests.cuda.cases import CASES


def test_all_cases_are_timed():
    assert set(gpu.PASSES) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_cases_run(emulation, name):
    ours, plain = gpu.op_turns(CASES[name], 4, 33, torch.bfloat16, "cpu")
    for actual, expected in zip(ours(), plain()):
        assert actual.shape == expected.shape


@pytest.mark.parametrize("name", ["adamw", "sum_of_squares", "normal_fill"])
def test_flat_cases_run(emulation, name):
    ours, plain, num_bytes = gpu.flat_turns(100, "cpu")[name]
    ours()
    plain()
    assert num_bytes in (400, 3000)


def test_lines_of_the_table():
    """1e9 bytes in 2 ms are 500 GB/s."""
    assert gpu.line("op", 2.0, 5.0, 1e9, 2e12) == "| op | 2.000 | 5.000 | 2.50 | 500 | 25% |"


def test_training_run(monkeypatch):
    arguments = "--layers 1 --hidden 128 --seq-length 16 --micro-batch-size 1 --train-iters 2".split()
    monkeypatch.setattr(gpu, "VOCAB", 50)
    last = gpu.train(gpu.parser().parse_args(arguments), CUDA_VISIBLE_DEVICES="")
    assert last["iteration"] == 2 and last["tokens_per_second"] > 0 and 3 < last["loss"] < 5
