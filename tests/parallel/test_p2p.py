import pytest
import torch

from megalite.parallel.context import ParallelContext
from megalite.parallel.p2p import Channel, PairTransport, TensorSpec, channel_rounds
from megalite.topology.mesh import Mesh
from tests.harness import run_world


@pytest.mark.parametrize("pp", range(2, 9))
@pytest.mark.parametrize("wrap", [False, True])
def test_rounds_hold_each_channel_once_and_each_rank_at_most_once_per_round(pp, wrap):
    rounds = channel_rounds(pp, wrap)
    for channels in rounds:
        ranks = [rank for channel in channels for rank in (channel.source, channel.target)]
        assert len(ranks) == len(set(ranks))
    edges = {(r, (r + 1) % pp) for r in range(pp if wrap else pp - 1)}
    expected = {Channel(a, b, "forward") for a, b in edges} | {Channel(b, a, "backward") for a, b in edges}
    flat = [channel for channels in rounds for channel in channels]
    assert len(flat) == len(set(flat)) and set(flat) == expected


def _ring(rank, world_size):
    context = ParallelContext(Mesh(pp=world_size), rank, torch.device("cpu"))
    transport = PairTransport(context, wrap=True)
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    spec = {"hidden": TensorSpec((2,), torch.float64), "ids": TensorSpec((1,), torch.int64)}
    posted = {}
    for number in range(4):  # more than may be outstanding, on channels that share a pair of ranks when there are two
        posted["forward", number] = transport.post(Channel(left, rank, "forward"), spec)
        posted["backward", number] = transport.post(Channel(right, rank, "backward"), spec)
    for number in range(4):
        ids = torch.tensor([number])
        transport.send(Channel(rank, right, "forward"), {"hidden": torch.full((2,), rank + 0.25).double(), "ids": ids})
        transport.send(Channel(rank, left, "backward"), {"hidden": torch.full((2,), rank + 0.5).double(), "ids": ids})
    arrived = {key: receive.wait() for key, receive in posted.items()}
    transport.flush()
    return {key: (tensors["hidden"].tolist(), tensors["ids"].item()) for key, tensors in arrived.items()}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_messages_arrive_on_their_channel_in_order(size):
    for rank, arrived in enumerate(run_world(_ring, size)):
        left, right = (rank - 1) % size, (rank + 1) % size
        for number in range(4):
            assert arrived["forward", number] == ([left + 0.25] * 2, number)
            assert arrived["backward", number] == ([right + 0.5] * 2, number)
