import math

import numpy as np
from hypothesis import given, strategies as st

from megalite.state import Box, flat_range_to_boxes

shapes = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)


@given(shapes, st.data())
def test_flat_range_is_its_boxes_in_order(shape, data):
    numel = math.prod(shape)
    start = data.draw(st.integers(0, numel))
    stop = data.draw(st.integers(start, numel))
    tensor = np.arange(numel).reshape(shape)
    boxes = flat_range_to_boxes(shape, start, stop)
    assert len(boxes) <= max(1, 2 * len(shape) - 1)
    position = 0
    for box, at in boxes:
        assert at == position
        part = tensor[box.inside(Box.whole(shape))].reshape(-1)
        assert (part == np.arange(start + at, start + at + box.numel)).all()
        position += box.numel
    assert position == stop - start


@st.composite
def boxes(draw, dims=3, size=6):
    offset = tuple(draw(st.integers(0, size - 1)) for _ in range(dims))
    return Box(offset, tuple(draw(st.integers(0, size - at)) for at in offset))


@given(boxes(), boxes())
def test_intersection_equals_the_intersection_of_element_sets(first, second):
    def mask(box):
        full = np.zeros((6, 6, 6), bool)
        full[box.inside(Box.whole((6, 6, 6)))] = True
        return full

    both = mask(first) & mask(second)
    common = first.intersect(second)
    assert (common is None) == (not both.any())
    if common is not None:
        assert (mask(common) == both).all()
