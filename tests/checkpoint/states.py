"""A small training state cut over ranks, and managers that save it."""

import os

import torch

from megalite.checkpoint.manager import CheckpointManager
from megalite.checkpoint.piece import Piece
from megalite.config import CheckpointConfig
from megalite.parallel.group import Group
from megalite.state import Box

SHAPE = (6, 4)


def world_group(rank, world_size):
    """The group of all ranks of a test's world."""
    if world_size == 1:
        return Group.single("world")
    return Group("world", rank, tuple(range(world_size)), torch.distributed.group.WORLD)


def manager_of(save, group=None, load=None, **fields):
    config = CheckpointConfig(save=save and str(save), load=load and str(load), **fields)
    return CheckpointManager(config, group or Group.single("world"))


def state(iteration, rank=0, world_size=1, fill=True):
    """Pieces of one rank: a tensor in row blocks, one that all ranks hold, and a counter held by rank 0 alone.

    Their values depend on the iteration; with ``fill=False`` they hold none of them.
    """
    rows = [SHAPE[0] * r // world_size for r in range(world_size + 1)]
    whole = torch.arange(24.0).view(SHAPE) + 100 * iteration
    block = Box((rows[rank], 0), (rows[rank + 1] - rows[rank], SHAPE[1]))
    norm = torch.full((5,), float(iteration), dtype=torch.bfloat16)
    pieces = [
        Piece("w", SHAPE, block, whole[rows[rank] : rows[rank + 1]].clone()),
        Piece("norm", (5,), Box.whole((5,)), norm, rank, world_size),
    ]
    if rank == 0:
        pieces.append(Piece("count", (), Box((), ()), torch.tensor(iteration)))
    if not fill:
        for piece in pieces:
            piece.tensor.fill_(-1)
    return pieces


def assert_state(pieces, iteration, rank=0, world_size=1):
    """The pieces hold the state of that iteration."""
    for piece, expected in zip(pieces, state(iteration, rank, world_size), strict=True):
        assert torch.equal(piece.tensor, expected.tensor), f"{piece.name} on rank {rank}: {piece.tensor}"


def save_all(save, iterations, rank=0, world_size=1, **fields):
    """Save the state of each iteration with one manager."""
    manager = manager_of(save, world_group(rank, world_size), **fields)
    for iteration in iterations:
        manager.save(iteration, state(iteration, rank, world_size), {"consumed_samples": 8 * iteration}, "seed: 1\n")
    manager.close()


def load_and_check(load, expected, rank=0, world_size=1, **fields):
    """Resume on every rank and compare with the state of iteration ``expected``. Returns the store."""
    manager = manager_of(None, world_group(rank, world_size), load=load, **fields)
    store = manager.resume()
    pieces = state(expected, rank, world_size, fill=False)
    manager.load(store, pieces)
    assert_state(pieces, expected, rank, world_size)
    assert store.meta == {"iteration": expected, "consumed_samples": 8 * expected}
    return store


def step_down():
    """Give up root's rights, which access rights do not bind. For workers of a test's world only."""
    if os.getuid() == 0:
        os.setuid(65534)
