"""Which device and backend this process uses."""

import os

import torch

from megalite.errors import ConfigError


def choose_backend(name: str) -> str:
    """Resolve ``--distributed-backend``: ``auto`` is nccl where CUDA is there, gloo elsewhere."""
    if name == "auto":
        return "nccl" if torch.cuda.is_available() else "gloo"
    if name == "nccl" and not torch.cuda.is_available():
        raise ConfigError(
            "distributed_backend nccl needs a CUDA device and none was found: use --distributed-backend gloo."
        )
    return name


def choose_device(backend: str) -> torch.device:
    """The device of this process: the GPU of its local rank under nccl, the CPU under gloo."""
    if backend != "nccl":
        return torch.device("cpu")
    local_rank, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local_rank >= count:
        raise ConfigError(
            f"nccl needs one GPU per process; local rank {local_rank} was started on a node with {count}: lower "
            f"--nproc-per-node to {count}."
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
