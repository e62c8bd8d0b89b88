"""How much memory this process holds: of the host, and of its GPU where it has one."""

import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")


def rss_bytes() -> int:
    """Host memory that this process has resident now; its peak on systems without ``/proc`` (macOS)."""
    return _status_field("VmRSS") if _STATUS.exists() else _getrusage_peak()


def peak_rss_bytes() -> int:
    """The most host memory that this process has ever had resident."""
    return _status_field("VmHWM") if _STATUS.exists() else _getrusage_peak()


def _status_field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"Linux lists {name} in {_STATUS} for every process with an address space")


def _getrusage_peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True)
class DeviceMemory:
    """Figures of PyTorch's caching allocator on one GPU, peaks since the start of the process; in bytes.

    ``reserved`` is what the process has taken from the GPU, ``allocated`` the part in use by tensors, and
    ``num_allocated`` the number of blocks in use.
    """

    reserved: int
    allocated: int
    max_reserved: int
    max_allocated: int
    num_allocated: int


@dataclass(frozen=True)
class Memory:
    """What a rank holds: ``rss`` bytes of the host, and of its GPU where it computes on one."""

    rss: int
    device: DeviceMemory | None = None

    @property
    def headline(self) -> int:
        """The one figure of the log line, in bytes: the most ever reserved on the GPU, the resident set on a CPU."""
        return self.rss if self.device is None else self.device.max_reserved


def measure_memory(device: torch.device) -> Memory:
    """The memory of this process now, computing on ``device``."""
    if device.type != "cuda":
        return Memory(rss_bytes())
    stats = torch.cuda.memory_stats(device)
    figures = DeviceMemory(
        reserved=stats["reserved_bytes.all.current"],
        allocated=stats["allocated_bytes.all.current"],
        max_reserved=stats["reserved_bytes.all.peak"],
        max_allocated=stats["allocated_bytes.all.peak"],
        num_allocated=stats["allocation.all.current"],
    )
    return Memory(rss_bytes(), figures)
