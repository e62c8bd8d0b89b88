"""Which version of each op is in use, and why: ``python -m megalite.ops.status``."""

from dataclasses import dataclass

from megalite import native
from megalite.log import echo, run_main
from megalite.ops import matmul


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
        Status("fp32 matrix products (CPU)", *matmul.library()),
        Status("random numbers (Philox)", "torch", "exact integer arithmetic on every device"),
        Status("index builders", native_active, native.reason()),
    ]


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
