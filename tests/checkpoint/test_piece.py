import itertools
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from megalite.checkpoint.index import coverage_problem
from megalite.checkpoint.piece import MIN_PART_BYTES, Piece, own_part, param_piece
from megalite.state import Box, Init, ParamSpec, flat_range_to_boxes
from tests.checkpoint.cuts import partitions


def holders(shape, count, name="w", **options):
    box = Box.whole(shape)
    tensor = torch.empty(()).expand(shape)  # a big tensor without memory
    return [Piece(name, shape, box, tensor, replica, count, **options) for replica in range(count)]


@given(rows=st.integers(1, 40), mebibytes_per_row=st.integers(0, 4), count=st.integers(1, 9), name=st.text(max_size=5))
def test_replicas_write_each_element_once(rows, mebibytes_per_row, count, name):
    shape = (rows, max(1, mebibytes_per_row << 18))
    parts = [part for piece in holders(shape, count, name) if (part := own_part(piece))]
    assert coverage_problem(Box.whole(shape), [part.box for part in parts]) is None
    assert all(part.num_replicas == 1 and tuple(part.tensor.shape) == part.box.extent for part in parts)


def test_replicas_share_the_bytes():
    """64 MiB over 4 holders: a quarter each. Over 32 holders: no part below the smallest, 4 MiB."""
    shape = (64, 1 << 18)
    parts = [own_part(piece) for piece in holders(shape, 4)]
    assert sorted(part.box.offset[0] for part in parts) == [0, 16, 32, 48]
    assert {part.box.extent for part in parts} == {(16, 1 << 18)}
    parts = [part for piece in holders(shape, 32) if (part := own_part(piece))]
    assert len(parts) == 16 and all(part.box.numel * 4 == MIN_PART_BYTES for part in parts)


def test_small_pieces_spread_over_their_holders():
    """1000 biases over 8 holders: the fair share is 125 and the standard deviation of a random one about 10."""
    writers = [piece.replica for i in range(1000) for piece in holders((16,), 8, f"layers.{i}.bias") if own_part(piece)]
    assert len(writers) == 1000
    assert all(75 < writers.count(replica) < 175 for replica in range(8))


def test_a_scalar_has_one_writer_and_a_copy_none():
    assert sum(own_part(piece) is not None for piece in holders((), 5)) == 1
    assert all(own_part(piece) is None for piece in holders((3,), 2, written=False))


def test_a_parameter_is_stored_without_its_padding():
    spec = ParamSpec("embedding.word.weight", (101, 2), Box((96, 0), (5, 2)), Init("zeros"), True)
    piece = param_piece(spec, torch.arange(64.0).view(32, 2), 0, 1)
    assert piece.box == spec.box and torch.equal(piece.tensor, torch.arange(10.0).view(5, 2))
    copy = ParamSpec("embedding.word.weight", (101, 2), spec.box, Init("zeros"), True, tie_copy=True)
    assert not param_piece(copy, torch.zeros(32, 2), 0, 1).written


def test_a_tensor_of_another_shape_than_its_box_is_our_bug():
    with pytest.raises(AssertionError, match="cannot hold box"):
        Piece("w", (4,), Box((0,), (3,)), torch.zeros(4))
    with pytest.raises(AssertionError, match="is outside shape"):
        Piece("w", (4,), Box((2,), (3,)), torch.zeros(3))


@given(st.data())
@settings(max_examples=200)
def test_coverage_agrees_with_counting_every_element(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
    boxes = [box for box in data.draw(partitions(shape)) if box.numel]
    change = data.draw(st.sampled_from(["none", "drop", "repeat", "other"]))
    if change == "drop":
        boxes.pop(data.draw(st.integers(0, len(boxes) - 1)))
    elif change == "repeat":
        boxes.append(data.draw(st.sampled_from(boxes)))
    elif change == "other":
        others = [box for box in data.draw(partitions(shape)) if box.numel]
        boxes[data.draw(st.integers(0, len(boxes) - 1))] = data.draw(st.sampled_from(others))
    count = torch.zeros(shape, dtype=torch.int64)
    for box in boxes:
        count[box.inside(Box.whole(shape))] += 1
    assert (coverage_problem(Box.whole(shape), boxes) is None) == bool((count == 1).all())


def test_slices_of_a_middle_dim_are_not_compared_in_pairs():
    """The gated weights of 8 tensor ranks, each sliced for 128 data-parallel ranks: 3056 boxes, 4.7 million pairs."""
    comparisons = []

    class Counted(Box):
        def intersect(self, other):
            comparisons.append(other)
            return super().intersect(other)

    extent, parts = (2, 3584, 8192), 128
    cuts = [0, *(part * math.prod(extent) // parts + 1000 for part in range(1, parts)), math.prod(extent)]
    slices = [box for cut in itertools.pairwise(cuts) for box, _ in flat_range_to_boxes(extent, *cut)]
    boxes = [Counted((b.offset[0], b.offset[1] + 3584 * tp, b.offset[2]), b.extent) for b in slices for tp in range(8)]
    assert len(boxes) > 3000
    assert coverage_problem(Box.whole((2, 8 * 3584, 8192)), boxes) is None
    assert len(comparisons) < len(boxes)
    assert "overlap" in coverage_problem(Box.whole((2, 8 * 3584, 8192)), [*boxes, boxes[-1]])
