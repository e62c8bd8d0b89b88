"""Reduce-scatter and all-gather on the CPU by messages from each rank to each other, straight from and to their places.

gloo's own reduce-scatter is an all-reduce of a copy, of which each rank throws all but its part away, and its
all-gather goes through a second buffer of the whole size. Direct messages send what must be sent and no more.

Each message is matched with its receive by their order alone, so all ranks of a group start their exchanges in the same
order, as they must with any collective.
"""

import torch
import torch.distributed as dist

from megalite.parallel.group import Group


class Exchange:
    """Messages under way; what arrives in ``received`` is added to ``total`` when it is awaited."""

    def __init__(self, works: list[dist.Work], total: torch.Tensor, received: list[torch.Tensor]):
        self._works, self._total, self._received = works, total, received

    def wait(self) -> None:
        """Return when everything is sent, received and added."""
        for work in self._works:
            work.wait()
        for tensor in self._received:
            self._total.add_(tensor)
        self._works, self._received = [], []


def start_reduce_scatter(part: torch.Tensor, tensor: torch.Tensor, group: Group) -> Exchange:
    """Begin to sum the ``group.rank``-th part of every rank's ``tensor`` into ``part``, which may be that part."""
    parts = _parts(tensor, part, group)
    if part.data_ptr() != parts[group.rank].data_ptr():
        part.copy_(parts[group.rank])
    works, received = [], []
    for source, target in _partners(group):
        received.append(torch.empty_like(part))
        works.append(dist.irecv(received[-1], group.ranks[source], group=group.pg))
        works.append(dist.isend(parts[target], group.ranks[target], group=group.pg))
    return Exchange(works, part, received)


def start_all_gather(gathered: torch.Tensor, part: torch.Tensor, group: Group) -> Exchange:
    """Begin to bring every rank's ``part`` to its place in ``gathered``; ``part`` may be in its place already."""
    parts = _parts(gathered, part, group)
    if part.data_ptr() != parts[group.rank].data_ptr():
        parts[group.rank].copy_(part)
    works = []
    for source, target in _partners(group):
        works.append(dist.irecv(parts[source], group.ranks[source], group=group.pg))
        works.append(dist.isend(parts[group.rank], group.ranks[target], group=group.pg))
    return Exchange(works, gathered, [])


def _parts(whole: torch.Tensor, part: torch.Tensor, group: Group) -> tuple[torch.Tensor, ...]:
    assert whole.numel() == group.size * part.numel(), f"{whole.numel()} elements are not {group.size} x {part.numel()}"
    return whole.chunk(group.size)


def _partners(group: Group) -> list[tuple[int, int]]:
    """(whom to receive from, whom to send to), another pair in each round, so that no rank is asked by all at once."""
    return [((group.rank - step) % group.size, (group.rank + step) % group.size) for step in range(1, group.size)]
