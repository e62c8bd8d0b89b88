import torch

from megalite.checkpoint.piece import Piece
from megalite.checkpoint.snapshot import HostMemory
from megalite.state import Box


def piece(tensor, name="w"):
    return Piece(name, tuple(tensor.shape), Box.whole(tensor.shape), tensor)


def test_a_snapshot_does_not_change_with_the_state():
    tensor = torch.arange(6.0).view(2, 3).t()
    scalar = torch.tensor(4)
    first, second = HostMemory().snapshot([piece(tensor), piece(scalar, "count")])
    tensor.fill_(-1)
    scalar.fill_(-1)
    assert torch.equal(first.tensor, torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])) and second.tensor.item() == 4
    assert (first.name, first.box, second.name) == ("w", Box((0, 0), (3, 2)), "count")


def test_the_next_one_uses_the_same_memory():
    buffers = HostMemory()
    (first,) = buffers.snapshot([piece(torch.zeros(5))])
    (second,) = buffers.snapshot([piece(torch.ones(5))])
    assert second.tensor.data_ptr() == first.tensor.data_ptr() and second.tensor.eq(1).all()


def test_memory_of_another_kind_is_not_used():
    buffers = HostMemory()
    buffers.snapshot([piece(torch.zeros(5))])
    (copy,) = buffers.snapshot([piece(torch.full((4,), 1.5))])
    assert copy.tensor.tolist() == [1.5] * 4
    (copy,) = buffers.snapshot([piece(torch.full((4,), 2.5, dtype=torch.bfloat16))])
    assert copy.tensor.dtype == torch.bfloat16 and copy.tensor.tolist() == [2.5] * 4


def test_odd_sizes_and_kinds_lie_beside_one_another():
    tensors = [
        torch.arange(3, dtype=torch.bfloat16),
        torch.tensor(7),
        torch.zeros(0, 4),
        torch.arange(5.0, dtype=torch.float64),
        torch.arange(2.0),
    ]
    copies = HostMemory().snapshot([piece(tensor, str(number)) for number, tensor in enumerate(tensors)])
    for tensor, copy in zip(tensors, copies, strict=True):
        assert copy.tensor.dtype == tensor.dtype and torch.equal(copy.tensor, tensor)
