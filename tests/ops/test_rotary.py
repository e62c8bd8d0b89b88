import pytest
import torch

from megalite.ops.rotary import RotaryLayout, rotate_
from tests.ops.truth import check, randn

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def angles(sequence, batch_size, pairs, dtype):
    angle = torch.arange(sequence * batch_size * pairs, dtype=torch.float64).view(sequence, batch_size, 1, 1, pairs) / 7
    dtype = dtype if dtype == torch.float64 else torch.float32
    return angle.cos().to(dtype), angle.sin().to(dtype)


def plain(x, layout, pairs):
    """By multiplication with complex numbers, of the heads that are rotated, pair by pair."""
    cos, sin = angles(*layout.shape[:2], pairs, x.dtype)
    heads = x.view(layout.shape)
    turned, rest = heads[..., : layout.num_heads, :], heads[..., layout.num_heads :, :]
    first = range(0, 2 * pairs, 2) if layout.interleaved else range(pairs)
    second = range(1, 2 * pairs, 2) if layout.interleaved else range(pairs, 2 * pairs)
    channels = list(turned.unbind(-1))
    for pair, (i, j) in enumerate(zip(first, second)):
        a, b, c, s = turned[..., i], turned[..., j], cos[..., pair], sin[..., pair]
        channels[i], channels[j] = (a * c - b * s).to(x.dtype), (b * c + a * s).to(x.dtype)
    return torch.cat((torch.stack(channels, -1), rest), dim=3).view(x.shape)


def rotated(x, layout, pairs):
    cos, sin = angles(*layout.shape[:2], pairs, x.dtype)
    return rotate_(x.clone(), cos, sin, layout)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim, pairs", [(2, 1), (8, 3), (32, 16), (40, 20), (128, 17), (256, 128)])
def test_native_is_as_exact_as_torch(isa, head_dim, pairs, dtype, interleaved):
    layout = RotaryLayout((3, 2, 2, 4, head_dim), 3, interleaved)
    x = randn(3, 2, 8 * head_dim, dtype=dtype)
    check(lambda x: rotated(x, layout, pairs), lambda x: plain(x, layout, pairs), [x])


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
def test_reference_is_as_exact_as_torch(reference, dtype, interleaved):
    layout = RotaryLayout((3, 2, 2, 4, 8), 3, interleaved)
    x = randn(3, 2, 64, dtype=dtype)
    check(lambda x: rotated(x, layout, 3), lambda x: plain(x, layout, 3), [x])
    assert dtype != torch.float64 or torch.autograd.gradcheck(lambda x: rotated(x, layout, 3), [x.requires_grad_()])


def test_in_place(isa):
    layout = RotaryLayout((2, 1, 1, 1, 4), 1, False)
    x = torch.ones(2, 1, 4)
    assert rotate_(x, *angles(2, 1, 2, x.dtype), layout).data_ptr() == x.data_ptr()
    assert not torch.equal(x, torch.ones(2, 1, 4))


def test_no_positions(isa):
    layout = RotaryLayout((0, 2, 1, 1, 4), 1, False)
    assert rotated(torch.ones(0, 2, 4), layout, 2).shape == (0, 2, 4)


def test_wrong_shapes_are_named():
    cos, sin = angles(2, 1, 3, torch.float32)
    with pytest.raises(AssertionError, match="3 pairs in heads of 4 channels"):
        rotate_(torch.ones(2, 1, 4), cos, sin, RotaryLayout((2, 1, 1, 1, 4), 1, False))
    with pytest.raises(AssertionError, match=r"cos \(2, 1, 1, 1, 3\), x \(3, 1, 1, 1, 8\)"):
        rotate_(torch.ones(3, 1, 8), cos, sin, RotaryLayout((3, 1, 1, 1, 8), 1, False))
