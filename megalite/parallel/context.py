"""ParallelContext: the process groups of one mesh, made once and passed by hand."""

import datetime
import os
from typing import Sequence

import torch
import torch.distributed as dist

from megalite.errors import DistributedError
from megalite.parallel.group import Group, Traffic
from megalite.topology.mesh import AXES, Mesh

_GROUPS = (("tp",), ("dp",), ("pp",), ("tp", "pp"), ("tp", "dp"))


class ParallelContext:
    """This process's place in the mesh, and the groups it belongs to.

    A mesh of one rank needs no ``init_process_group``: every group is of size 1 and no collective communicates.
    ``timeout``: how long a collective of any group may take before it fails; None for PyTorch's own default.
    """

    def __init__(self, mesh: Mesh, rank: int, device: torch.device, timeout: datetime.timedelta | None = None):
        assert mesh.world_size == 1 or dist.is_initialized(), (
            "a mesh of several ranks needs an initialised process group"
        )
        self.mesh, self.rank, self.device = mesh, rank, device
        self._timeout = timeout
        self.coords = mesh.coords(rank)
        self.traffic = Traffic()
        self._groups = {axes: self._new_group("-".join(axes), mesh.ranks(axes, rank)) for axes in _GROUPS}
        self.world = self._new_group("world", mesh.ranks(AXES, rank))

    @staticmethod
    def create(mesh: Mesh, backend: str, device: torch.device, timeout_minutes: float = 10) -> "ParallelContext":
        """Join the job that torchrun's environment describes, and make the groups of ``mesh``.

        Raises :class:`DistributedError` if the environment does not describe ``mesh.world_size`` processes.
        """
        if mesh.world_size == 1:
            return ParallelContext(mesh, 0, device)
        timeout = datetime.timedelta(minutes=timeout_minutes)
        if not dist.is_initialized():
            missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
            if missing:
                raise DistributedError(
                    f"a world of {mesh.world_size} needs torchrun's environment; {', '.join(missing)} not set: "
                    f"start with torchrun --nproc-per-node {mesh.world_size}."
                )
            _join(backend, device, timeout)
        return ParallelContext(mesh, dist.get_rank(), device, timeout)

    @staticmethod
    def single(device: torch.device | str = "cpu") -> "ParallelContext":
        """One process, no communication."""
        return ParallelContext(Mesh(), 0, torch.device(device))

    def group(self, *axes: str) -> Group:
        """The group along ``axes`` that this rank belongs to: tp, dp, pp, tp-pp or tp-dp."""
        return self._groups[tuple(axes)]

    def subgroup(self, name: str, ranks: Sequence[int] | None) -> Group | None:
        """One more group, of ``ranks``, in which this rank is; None joins none, and returns None.

        A collective of the world: every rank makes the same number of calls, and in each the ranks' groups are
        disjoint.
        """
        if self.mesh.world_size == 1:
            return None
        return self._new_group(name, tuple(sorted(ranks)) if ranks else (self.rank,), stay_in_step=True)

    def another_world(self, name: str) -> Group:
        """One more group of all ranks, over gloo whatever the backend: for a thread that communicates beside training.

        A collective of the world.
        """
        return self._new_group(name, self.world.ranks, backend="gloo")

    def _new_group(
        self, name: str, ranks: tuple[int, ...], stay_in_step: bool = False, backend: str | None = None
    ) -> Group | None:
        """Only members take part in making a group, so that the groups of a large world cost each rank only its own.

        PyTorch then names a group after its ranks and the number of groups that this process already has; so a rank
        that joins none makes one of its own, to stay in step.
        """
        alone = len(ranks) == 1
        if alone and not stay_in_step:
            return Group(name, 0, ranks, traffic=self.traffic)
        # A group takes nothing over from the job's own: without a timeout, gloo's would wait for half an hour.
        pg = dist.new_group(list(ranks), self._timeout, backend, use_local_synchronization=True)
        return None if alone else Group(name, ranks.index(self.rank), ranks, pg, self.traffic)

    def close(self) -> None:
        """Leave the job: after this no collective is possible."""
        if self.mesh.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _join(backend: str, device: torch.device, timeout: datetime.timedelta) -> None:
    """Initialise the process group of the job.

    torchrun's store outlives the workers that ``--max-restarts`` replaces, with the addresses of those that are gone
    (pytorch/pytorch#135712), so each attempt has its part of the store. On several nodes the attempts are not counted
    alike; there, restarts need TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in torchrun's environment.
    """
    store, rank, world_size = next(dist.rendezvous("env://", timeout=timeout))
    if os.environ.get("LOCAL_WORLD_SIZE") == str(world_size):
        store = dist.PrefixStore(f"attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    device_id = device if device.type == "cuda" else None
    dist.init_process_group(
        backend, timeout=timeout, store=store, rank=rank, world_size=world_size, device_id=device_id
    )
