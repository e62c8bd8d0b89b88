"""Logging that knows the rank: the only file of the package that writes to the screen.

Rank 0 speaks; the others are silent up to warnings, which carry their rank. Modules write
``from megalite.log import logger``.
"""

import logging
import os
import sys
import traceback
from typing import Callable

from megalite.errors import MegaliteError

logger = logging.getLogger("megalite")


class _Formatter(logging.Formatter):
    def __init__(self, rank: int):
        super().__init__()
        self._rank = rank

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        if self._rank:
            text = "\n".join(f"[rank {self._rank}] {line}" for line in text.splitlines())
        return text


def setup_logging(rank: int | None = None) -> None:
    """Send the log of this process to its standard output: everything on rank 0, warnings elsewhere.

    ``rank`` defaults to torchrun's ``RANK`` variable. Calling it again replaces the former set-up.
    """
    if rank is None:
        rank = int(os.environ.get("RANK", "0"))
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Formatter(rank))
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)


def echo(text: str) -> None:
    """Write the result of a command-line tool to standard output, whatever the log level."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def progress(text: str) -> None:
    """Show a line of progress on standard error, so that it never mixes with a tool's result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def run_main(main: Callable[[], int | None]) -> None:
    """Run a program's body and leave with its status.

    A :class:`MegaliteError` is the user's: it is shown as one message without a traceback, exit status 2. Anything
    else is a bug or a failed rank: the traceback is shown, exit status 1. The process leaves by ``os._exit`` in
    both cases, for a peer that waits in a collective must see the connection close at once.
    """
    rank = os.environ.get("RANK", "0")
    try:
        status = main() or 0
    except MegaliteError as error:
        status = 2
        if rank == "0" or not getattr(error, "same_on_every_rank", False):
            where = "" if rank == "0" else f"[rank {rank}] "
            sys.stderr.write(f"{where}{type(error).__name__}: {error}\n")
    except KeyboardInterrupt:
        status = 130
    except Exception:
        status = 1
        sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in traceback.format_exc().splitlines()))
    sys.stdout.flush()
    sys.stderr.flush()
    if status:
        os._exit(status)
