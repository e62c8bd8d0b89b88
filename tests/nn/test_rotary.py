import cmath
import math

import pytest
import torch

from megalite.config import ModelConfig
from megalite.nn.rotary import Rotary, frequencies
from tests.nn.world import assert_gradient, assert_same, random


def model(**fields):
    defaults = dict(num_layers=1, hidden_size=16, num_attention_heads=2, seq_length=8, position_embedding_type="rope")
    return ModelConfig(**{**defaults, **fields})


def by_complex_numbers(head, position, turns, interleaved):
    """Rotate one head, a list of numbers: channel pairs as complex numbers times exp(i angle)."""
    half, head = len(turns), list(head)
    for k, turn in enumerate(turns):
        at = (2 * k, 2 * k + 1) if interleaved else (k, k + half)
        turned = complex(head[at[0]], head[at[1]]) * cmath.exp(1j * position * turn)
        head[at[0]], head[at[1]] = turned.real, turned.imag
    return head


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("percent", [1.0, 0.5])
def test_rotation_of_the_first_heads_of_each_group(interleaved, percent):
    config = model(rotary_interleaved=interleaved, rotary_percent=percent)
    turns = [10000.0 ** (-2 * k / (8 * percent)) for k in range(int(4 * percent))]
    shape = (4, 2, 2, 3, 8)  # s, b, groups, heads, d
    x = random(4, 2, 48)
    positions = torch.tensor([[0, 1, 2, 3], [5, 0, 1, 2]])
    expected = x.view(shape).clone()
    for s in range(4):
        for b in range(2):
            for group in range(2):
                for head in range(2):
                    values = by_complex_numbers(
                        expected[s, b, group, head].tolist(), int(positions[b, s]), turns, interleaved
                    )
                    expected[s, b, group, head] = torch.tensor(values, dtype=torch.float64)
    rotary = Rotary(config)
    own = x.clone()
    y = rotary.rotate_(own, shape, 2, positions)
    assert_same(y.view(shape), expected)
    assert y.data_ptr() == own.data_ptr()
    weights = random(4, 2, 48, seed=1)
    assert_gradient(lambda x: (rotary.rotate_(x.clone(), shape, 2, positions) * weights).sum(), x)


def test_scores_depend_on_the_distance_alone():
    rotary = Rotary(model(seq_length=64))
    query, key = random(1, 1, 8), random(1, 1, 8, seed=1)

    def turn(x, position):
        return rotary.rotate_(x.clone(), (1, 1, 1, 1, 8), 1, torch.tensor([[position]]))

    assert_same((turn(query, 13) * turn(key, 9)).sum(), (turn(query, 60) * turn(key, 56)).sum())


def test_tables_of_16_bit_models_are_float32_and_tell_all_positions_apart():
    rotary = Rotary(model(seq_length=5000))
    cos, sin = rotary.at(torch.arange(5000).unsqueeze(0), torch.bfloat16)
    assert cos.dtype == sin.dtype == torch.float32
    for position in (256, 257, 4097):
        for k in range(4):
            angle = position * 10000.0 ** (-k / 4)
            assert abs(float(cos[position, 0, 0, 0, k]) - math.cos(angle)) < 1e-7
            assert abs(float(sin[position, 0, 0, 0, k]) - math.sin(angle)) < 1e-7
    assert len({tuple(row) for row in cos.flatten(1).tolist()}) == 5000


@pytest.mark.parametrize("interleaved", [False, True])
def test_bfloat16_is_rounded_once(interleaved):
    config = model(rotary_interleaved=interleaved)
    x = random(8, 1, 8).bfloat16()
    exact = Rotary(config).rotate_(x.double(), (8, 1, 1, 1, 8), 1, torch.arange(8).unsqueeze(0))
    rotated = Rotary(config).rotate_(x.clone(), (8, 1, 1, 1, 8), 1, torch.arange(8).unsqueeze(0))
    torch.testing.assert_close(rotated.double(), exact, rtol=2**-8, atol=1e-6)


def test_interpolation_divides_positions():
    assert_same(frequencies(model(rotary_seq_len_interpolation_factor=4.0)), frequencies(model()) / 4)


def test_llama3_scaling_keeps_short_wavelengths_and_stretches_long_ones():
    config = model(hidden_size=256, rotary_base=500000.0, use_rope_scaling=True, rope_scaling_factor=8.0)
    for plain, scaled in zip(
        frequencies(model(hidden_size=256, rotary_base=500000.0)).tolist(), frequencies(config).tolist()
    ):
        wavelength = 2 * math.pi / plain
        if wavelength < 8192 / 4:
            expected = plain
        elif wavelength > 8192:
            expected = plain / 8
        else:
            smooth = (8192 / wavelength - 1) / 3
            expected = (1 - smooth) * plain / 8 + smooth * plain
        assert math.isclose(scaled, expected, rel_tol=1e-12)


def test_layers_share_the_angles_of_a_micro_batch_but_not_of_another():
    rotary, positions = Rotary(model()), torch.arange(4).unsqueeze(0)
    cos, sin = rotary.at(positions, torch.float32)
    assert rotary.at(positions, torch.bfloat16)[0] is cos
    assert rotary.at(positions, torch.float64)[0].dtype == torch.float64
    positions += 1
    assert torch.equal(rotary.at(positions, torch.float32)[0][:3], cos[1:])
    assert torch.equal(rotary.at(positions.clone() - 1, torch.float32)[1], sin)
