"""Which version of each op is in use, and why: ``python -m megalite.ops.status``."""

import importlib
import pkgutil
from dataclasses import dataclass

import torch

from megalite import native, ops
from megalite.log import echo, run_main
from megalite.ops import matmul
from megalite.ops.kernels import module_for


@dataclass(frozen=True)
class Status:
    """One line of the table."""

    op: str
    active: str
    reason: str


def collect() -> list[Status]:
    """The state of every op on this machine."""
    native_active = "native" if native.native() is not None else "python"
    return [
        Status("fp32 products (CPU)", matmul.choice().products, matmul.choice().reason),
        Status("fp32 weight gradients (CPU)", matmul.choice().weight_grads, matmul.choice().reason),
        *(_kernels_of(name, names) for name, names in registered().items()),
        Status("the same on a GPU", *_gpu()),
        Status("allocator", *_allocator()),
        Status("index builders", native_active, native.reason()),
    ]


def registered() -> dict[str, tuple[str, ...]]:
    """The kernels that each op takes where they are: ``KERNELS`` of the files of this directory."""
    names = [module.name for module in pkgutil.iter_modules(ops.__path__) if module.name != "status"]
    modules = {name: importlib.import_module(f"{ops.__name__}.{name}") for name in names}
    return {name: module.KERNELS for name, module in modules.items() if hasattr(module, "KERNELS")}


def _kernels_of(op: str, names: tuple[str, ...]) -> Status:
    module = module_for("cpu")
    if module is None:
        return Status(op, "torch", native.reason())
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        return Status(op, "torch", f"the module lacks {', '.join(missing)}: install megalite again to rebuild it")
    return Status(op, "native", f"{module.ISA}; float32, bfloat16 and float16 on the CPU")


def _gpu() -> tuple[str, str]:
    if native.cuda() is None:
        return "torch", native.cuda_reason()
    return "native", native.cuda_reason() + ("" if torch.cuda.is_available() else "; there is no GPU here")


def _allocator() -> tuple[str, str]:
    module = native.native()
    if module is None:
        return "default", native.reason()
    if not module.MALLOC_TUNED:
        return "default", "not glibc, or MEGALITE_MALLOC=0"
    return "tuned", "glibc keeps freed memory for the next step; MEGALITE_MALLOC=0 switches this off"


def table(rows: list[Status]) -> str:
    """The rows under a heading, in columns."""
    cells = [("op", "active", "reason")] + [(row.op, row.active, row.reason) for row in rows]
    widths = [max(len(cell[column]) for cell in cells) for column in range(2)]
    return "\n".join(f"{op:{widths[0]}}  {active:{widths[1]}}  {reason}" for op, active, reason in cells)


def main() -> None:
    """Print the table."""
    echo(table(collect()))


if __name__ == "__main__":
    run_main(main)
