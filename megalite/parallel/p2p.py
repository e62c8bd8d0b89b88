"""Point-to-point transport between pipeline ranks.

Each neighbour and direction has a two-rank process group of its own, so an activation never queues behind a gradient.
Receives are posted early and awaited where the data are used. A send keeps its tensors until they have left; at most
two sends of a channel are outstanding, which bounds memory and, since a lowered schedule runs even if every send
blocks until it is received (:mod:`megalite.schedule.lower`), cannot deadlock.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.distributed as dist

from megalite.parallel.context import ParallelContext
from megalite.parallel.group import Group

_MAX_OUTSTANDING_SENDS = 2

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class TensorSpec:
    """Declared shape and dtype of a tensor that stages exchange."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Channel:
    """One-way connection between two pipeline ranks: activations go forward, gradients backward."""

    source: int
    target: int
    direction: Literal["forward", "backward"]


class Receive(Protocol):
    """A receive that has been posted."""

    def wait(self) -> Tensors:
        """The tensors, once they have arrived."""


class Transport(Protocol):
    """What the executor needs to exchange tensors; messages of a channel arrive in the order they were sent in."""

    def send(self, channel: Channel, tensors: Tensors) -> None:
        """Begin to send; the tensors must not be changed any more."""

    def post(self, channel: Channel, specs: dict[str, TensorSpec]) -> Receive:
        """Begin to receive tensors of these names, shapes and dtypes."""

    def flush(self) -> None:
        """Wait until everything sent has left."""


class _PostedReceive:
    def __init__(self, tensors: Tensors, works: list[dist.Work]):
        self._tensors, self._works = tensors, works

    def wait(self) -> Tensors:
        for work in self._works:
            work.wait()
        return self._tensors


def channel_rounds(pp: int, wrap: bool) -> list[list[Channel]]:
    """All channels of a chain of ``pp`` ranks in rounds, in each of which a rank has at most one channel.

    ``wrap`` closes the ring, for ranks with several stages.
    """
    edges = [(rank, (rank + 1) % pp) for rank in range(pp if wrap else pp - 1)]
    # Neighbouring edges alternate between two rounds; the last edge of an odd ring touches both and has its own.
    color_of = [2 if wrap and pp % 2 and index == pp - 1 else index % 2 for index in range(len(edges))]
    rounds = []
    for color in range(3):
        same = [edge for edge, own in zip(edges, color_of) if own == color]
        rounds.append([Channel(source, target, "forward") for source, target in same])
        rounds.append([Channel(target, source, "backward") for source, target in same])
    return rounds


class PairTransport:
    """Transport over ``torch.distributed``: one two-rank group per channel of this rank's pipeline."""

    def __init__(self, context: ParallelContext, wrap: bool):
        chain = context.group("pp").ranks
        self._device = context.device
        self._ranks = chain
        self._groups: dict[Channel, Group] = {}
        self._sends: dict[Channel, deque] = {}
        me = context.coords.pp
        for channels in channel_rounds(len(chain), wrap):
            own = next((channel for channel in channels if me in (channel.source, channel.target)), None)
            peers = None if own is None else (chain[own.source], chain[own.target])
            group = context.subgroup("p2p", peers)
            if own is not None:
                self._groups[own] = group
                self._sends[own] = deque()

    def send(self, channel: Channel, tensors: Tensors) -> None:
        group, sends = self._groups[channel], self._sends[channel]
        while len(sends) >= _MAX_OUTSTANDING_SENDS:
            self._await_oldest(sends)
        payload = [tensors[name].contiguous() for name in sorted(tensors)]
        for tensor in payload:
            group.traffic.add("send", group.axis, tensor.numel() * tensor.element_size())
        works = [dist.isend(tensor, self._ranks[channel.target], group=group.pg) for tensor in payload]
        sends.append((works, payload))

    def post(self, channel: Channel, specs: dict[str, TensorSpec]) -> Receive:
        group, source = self._groups[channel], self._ranks[channel.source]
        tensors = {
            name: torch.empty(specs[name].shape, dtype=specs[name].dtype, device=self._device) for name in sorted(specs)
        }
        works = [dist.irecv(tensor, source, group=group.pg) for tensor in tensors.values()]
        return _PostedReceive(tensors, works)

    def flush(self) -> None:
        for sends in self._sends.values():
            while sends:
                self._await_oldest(sends)

    @staticmethod
    def _await_oldest(sends: deque) -> None:
        works, _ = sends.popleft()
        for work in works:
            work.wait()
