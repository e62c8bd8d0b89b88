import hashlib
import math
import struct

import pytest
import torch
from hypothesis import given, settings, strategies as st

from megalite.ops import kernels, philox
from megalite.ops.box_muller import box_muller
from megalite.state import Box

ONES = 0xFFFFFFFF
KNOWN = [  # Random123's published known-answer vectors of philox4x32 with 10 rounds: counter, key, result
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def in_python(counter, key):
    """The cipher in unbounded integers, as the paper states it."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * counter[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * counter[2], 1 << 32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) & ONES, (key[1] + 0xBB67AE85) & ONES]
    return tuple(counter)


def in_torch(counter, key):
    return tuple(int(word) for word in philox.philox4x32(tuple(torch.tensor([word]) for word in counter), key))


@pytest.mark.parametrize("counter, key, expected", KNOWN)
def test_published_vectors(counter, key, expected):
    assert in_torch(counter, key) == expected == in_python(counter, key)


word = st.integers(0, ONES)


@settings(deadline=None)
@given(st.tuples(word, word, word, word), st.tuples(word, word))
def test_cipher_equals_unbounded_integer_arithmetic(counter, key):
    assert in_torch(counter, key) == in_python(counter, key)


def test_words_are_those_of_the_block_number_and_step_at_64_bits():
    block, step = (5 << 32) + 7, (3 << 32) + 11
    key = philox.stream_key(9, "a")
    assert tuple(philox.words(9, "a", torch.tensor([block]), step)[0].tolist()) == in_python((7, 5, 11, 3), key)


def test_seed_purpose_step_and_index_all_matter():
    block = torch.arange(4)
    streams = [
        philox.words(1, "a", block),
        philox.words(2, "a", block),
        philox.words(1, "b", block),
        philox.words(1, "a", block, 1),
    ]
    streams.append(philox.words(1, "a", block + 4))
    assert len({tuple(stream.flatten().tolist()) for stream in streams}) == len(streams)


@st.composite
def boxes(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    offset = tuple(draw(st.integers(0, size - 1)) for size in shape)
    return shape, Box(offset, tuple(draw(st.integers(0, size - at)) for size, at in zip(shape, offset)))


@settings(max_examples=200, deadline=None)
@given(boxes(), st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
def test_any_box_equals_that_part_of_the_whole(case, dtype):
    shape, box = case
    whole = philox.normal_box(3, "w", shape, Box.whole(shape), 0.5, dtype)
    part = philox.normal_box(3, "w", shape, box, 0.5, dtype)
    assert part.dtype == dtype and torch.equal(part, whole[box.inside(Box.whole(shape))])


@pytest.mark.parametrize(
    "shape, box",
    [
        ((3, 300_001), Box((1, 5), (2, 299_990))),
        ((300_001,), Box((7,), (290_000,))),
        ((700, 513), Box((3, 0), (690, 513))),
    ],
)
def test_boxes_of_several_tiles(shape, box):
    whole = philox.normal_box(3, "w", shape, Box.whole(shape), 1.0, torch.float64)
    part = philox.normal_box(3, "w", shape, box, 1.0, torch.float64)
    assert torch.equal(part, whole[box.inside(Box.whole(shape))])


def test_normal_numbers_are_box_muller_of_the_words():
    words = philox.words(3, "w", torch.tensor([1]))[0].tolist()
    radius, angle = math.sqrt(-2 * math.log((words[2] + 1) / 2**32)), 2 * math.pi * (words[3] + 1) / 2**32
    values = philox.normal_box(3, "w", (8,), Box((4,), (4,)), 2.0, torch.float64)
    expected = torch.tensor([radius * math.cos(angle), radius * math.sin(angle)], dtype=torch.float64) * 2
    torch.testing.assert_close(values[2:], expected, rtol=1e-14, atol=0)


def check_normals(radius_word, angle_word):
    radius, angle = math.sqrt(-2 * math.log((radius_word + 1) / 2**32)), 2 * math.pi * (angle_word + 1) / 2**32
    actual = box_muller(torch.tensor([[0, 0, radius_word, angle_word]]))[0, 2:]
    expected = torch.tensor([radius * math.cos(angle), radius * math.sin(angle)], dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=2e-15, atol=1e-14)


@settings(max_examples=200, deadline=None)
@given(word, word)
def test_normal_numbers_of_any_words(radius_word, angle_word):
    check_normals(radius_word, angle_word)


@pytest.mark.parametrize(
    "angle_word", [0, 2**29 - 1, 2**29, 2**30 - 1, 2**31 - 1, 2**31, 3 * 2**30 - 1, ONES - 1, ONES]
)
def test_normal_numbers_of_extreme_words(angle_word):
    for radius_word in (0, 1, 2**31 - 1, 2**31, 3 * 2**30 - 1, ONES - 1, ONES):
        check_normals(radius_word, angle_word)


def test_normal_numbers_are_the_same_bits_whatever_the_dispatch(isa, monkeypatch):
    """Of runs that begin anywhere in a block, of lengths around the kernel's steps, of element numbers above 2^34."""
    shape = (1 << 20, 1 << 20)
    boxes = [
        Box((row, 3 * row), (3, length))
        for row in (0, 5, 1 << 19)
        for length in (1, 2, 3, 4, 5, 31, 32, 33, 4095, 4097)
    ]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        native = [philox.normal_box(5, "w", shape, box, 0.02, dtype) for box in boxes]
        with monkeypatch.context() as context:
            context.setattr(kernels, "module_for", lambda device_type: None)
            reference = [philox.normal_box(5, "w", shape, box, 0.02, dtype) for box in boxes]
        assert all(torch.equal(a, b) for a, b in zip(native, reference))


def test_normal_numbers_are_normal():
    values = philox.normal_box(1, "w", (1000, 1000), Box.whole((1000, 1000)), 1.0, torch.float64)
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert abs(float(values.pow(power).mean()) - moment) < 0.02
    sizes = values.abs().flatten()
    for limit in (0.5, 1.0, 2.0, 3.0):
        assert abs(float((sizes < limit).double().mean()) - math.erf(limit / math.sqrt(2))) < 0.002
    rows = torch.corrcoef(values[:8])
    assert float((rows - torch.eye(8)).abs().max()) < 0.15


def random_half(seed, purpose, element):
    """The 16-bit number of an element of a stream, in plain integers: a block, as little-endian bytes, is eight."""
    key = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    block = in_python((element // 8 & ONES, element // 8 >> 32, 0, 0), struct.unpack("<2I", key[:8]))
    return struct.unpack("<8H", struct.pack("<4I", *block))[element % 8]


@pytest.mark.parametrize("length", [1, 3, 4, 8, 10, 64])
@pytest.mark.parametrize("p", [2**-16, 0.1, 0.5, 0.9, 1 - 2**-16])
def test_keep_mask_compares_half_a_word_for_each_element(length, p):
    rows = torch.tensor([0, 5, 2, (1 << 40) + 3])
    expected = [
        [random_half(4, "d", row * length + column) >= round(p * 65536) for column in range(length)]
        for row in rows.tolist()
    ]
    assert philox.keep_mask(4, "d", rows, length, p).tolist() == expected


def test_keep_mask_drops_numbers_below_the_threshold_and_no_other():
    numbers = [random_half(4, "d", element) for element in range(4096)]
    for number in (min(numbers), sorted(numbers)[2000], max(numbers)):
        for threshold in {max(1, number), min(65535, number + 1)}:
            keep = philox.keep_mask(4, "d", torch.tensor([0]), 4096, threshold / 65536)
            assert keep[0].tolist() == [other >= threshold for other in numbers]


def test_scale_is_that_of_the_rounded_probability():
    assert philox.keep_scale(0.0) == 1 and philox.keep_scale(0.5) == 2
    assert philox.keep_scale(0.1) == 65536 / (65536 - 6554)
    assert philox.keep_scale(1 - 2**-16) == 65536


@pytest.mark.parametrize("p", [2**-18, 1 - 2**-18, 1.0])
def test_probabilities_that_round_to_none_or_all_are_refused(p):
    with pytest.raises(AssertionError, match="would drop all or nothing"):
        philox.drop_threshold(p)


def test_keep_mask_drops_the_asked_share():
    for p in (0.0, 0.1, 0.5):
        keep = philox.keep_mask(4, "d", torch.arange(1000), 1000, p)
        assert abs(float(keep.double().mean()) - (1 - p)) < 0.002
    assert philox.keep_mask(4, "d", torch.arange(10), 10, 0.0).all()


def test_keep_mask_of_long_rows_is_tiled_without_a_seam():
    rows, length = torch.tensor([2, 0]), 300_000
    keep = philox.keep_mask(4, "d", rows, length, 0.5)
    assert torch.equal(
        keep[0], philox.keep_mask(4, "d", torch.arange(2 * length // 8, 3 * length // 8), 8, 0.5).flatten()
    )
