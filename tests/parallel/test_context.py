"""The process groups of a mesh: every one of them gives up after the time that the user gave."""

import datetime

import torch

from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from tests.harness import run_world

CPU = torch.device("cpu")


def timeouts(rank, world_size):
    """The timeout in minutes of each group that a job makes, by its name."""
    context = ParallelContext.create(Mesh(tp=2, dp=1, pp=2), "gloo", CPU, timeout_minutes=7)
    groups = [context.group(*axes) for axes in (("tp",), ("pp",), ("tp", "pp"), ("tp", "dp"))]
    first = rank // 2 * 2
    groups += [context.world, context.another_world("checkpoint"), context.subgroup("tie", (first, first + 1))]
    return {group.axis: minutes_of(group) for group in groups}


def minutes_of(group):
    return group.pg._get_backend(CPU).options._timeout / datetime.timedelta(minutes=1)


def test_the_timeout_holds_for_every_group():
    names = ("tp", "pp", "tp-pp", "tp-dp", "world", "checkpoint", "tie")
    assert run_world(timeouts, 4) == [dict.fromkeys(names, 7.0)] * 4
