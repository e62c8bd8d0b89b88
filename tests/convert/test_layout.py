"""Layouts as data: parts map both ways, replicas, slices, and elements that are in no part."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from megalite.convert.layout import Layout, Part
from megalite.state import Box


@given(st.permutations([0, 1, 2]), st.lists(st.integers(1, 4), min_size=3, max_size=3), st.integers(0, 3))
def test_a_part_maps_there_and_back(order, split, offset):
    extent = tuple(split[dim] for dim in order)
    numel = torch.Size(split).numel()
    part = Part("ours", Box.whole(extent), "theirs", Box((offset,), (numel,)), tuple(split), tuple(order))
    foreign = torch.arange(numel + 5)
    ours = part.to_canonical(foreign)
    assert ours.shape == extent
    for index in ((0, 0, 0), tuple(size - 1 for size in extent)):
        by_split = [0, 0, 0]
        for position, dim in enumerate(order):
            by_split[dim] = index[position]
        flat = (by_split[0] * split[1] + by_split[1]) * split[2] + by_split[2]
        assert ours[index] == offset + flat
    assert torch.equal(part.to_foreign(ours), foreign[offset : offset + numel])


def test_boxes_are_read_from_where_they_lie_and_replicas_once():
    table = Layout({"w": (4, 3)})
    for rank in range(2):
        table.add("w", f"rank {rank}", box=Box((2 * rank, 0), (2, 3)))
    table.add("w", "copy", box=Box((0, 0), (2, 3)))
    assert [part.key for part in table.sources("w")] == ["rank 0", "rank 1"]
    whole = torch.arange(12.0).view(4, 3)
    files = {"rank 0": whole[:2], "rank 1": whole[2:]}
    out = torch.zeros(2, 2)
    table.fill("w", Box((1, 1), (2, 2)), out, files.__getitem__)
    assert torch.equal(out, whole[1:3, 1:3])
    assert torch.equal(table.make_foreign("copy", {"w": whole}.__getitem__), whole[:2])


def test_what_no_part_covers_is_zero():
    table = Layout({"w": (2, 2)})
    table.add("w", "padded", (5, 2), foreign_box=Box((2, 0), (2, 2)))
    made = table.make_foreign("padded", {"w": torch.ones(2, 2)}.__getitem__)
    assert made.tolist() == [[0, 0], [0, 0], [1, 1], [1, 1], [0, 0]]


def test_a_made_tensor_owns_its_memory():
    """A slice would be pickled with all of the tensor that it was cut from."""
    table = Layout({"w": (100, 4)})
    table.add("w", "rows", box=Box((10, 0), (2, 4)))
    made = table.make_foreign("rows", {"w": torch.ones(100, 4)}.__getitem__)
    assert made.untyped_storage().nbytes() == made.nbytes == 32


def test_parts_that_do_not_fit_are_our_bug():
    with pytest.raises(AssertionError, match="gives shape"):
        Layout({"w": (4,)}).add("w", "k", split=(2, 2))
