"""Logging that knows the rank: the only file of the package that writes to the screen.

Rank 0 speaks; the others are silent up to warnings, which carry their rank. Modules write
``from megalite.log import logger``.
"""

import json
import logging
import os
import re
import sys
import time
import traceback
from typing import Callable

from megalite.errors import MegaliteError

logger = logging.getLogger("megalite")

GRACE_SECONDS = 3.0
"""How long a rank keeps to itself what another rank has probably said already: see :func:`run_main`."""

# What gloo, NCCL and torch's store say when another process is gone or does not answer.
_LOST_PEER = re.compile(
    "connection (closed|reset) by peer|broken pipe|timed out|got 0 bytes"
    "|remote process exited|communicator was aborted",
    re.IGNORECASE,
)


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
    rank = _rank() if rank is None else rank
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Formatter(rank))
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)


def echo(text: str) -> None:
    """Write the result of a command-line tool to standard output, whatever the log level; rank 0 alone does."""
    if _rank() == 0:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def progress(text: str) -> None:
    """Show a line of progress on standard error, so that it never mixes with a tool's result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def run_main(main: Callable[[], int | None]) -> None:
    """Run a program's body and leave with its status.

    A :class:`MegaliteError` is the user's: it is shown as one message without a traceback, exit status 2. Anything
    else is a bug or a failed rank: the traceback is shown, exit status 1. Either way the process leaves at once by
    ``os._exit``: peers that wait for it in a collective see the connection close and torchrun ends the job.

    In a job of many ranks the cause is to be read once, and last. So a rank waits before it reports what another one
    has probably reported: an error of the user, which rank 0 finds too, or the loss of another rank. Where that is so,
    torchrun ends this process meanwhile.
    """
    shown = True
    try:
        status, text = main() or 0, ""
    except MegaliteError as error:
        status, text = 2, f"{type(error).__name__}: {error}"
        if _rank():
            shown = not error.same_on_every_rank
            time.sleep(GRACE_SECONDS)
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    except Exception as error:
        status, text = 1, traceback.format_exc()
        if _LOST_PEER.search(str(error)):
            text += "Another rank is gone or does not answer: look for its failure first."
            time.sleep(GRACE_SECONDS)
    if not status:
        return
    if text:
        _report(text, shown)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _report(text: str, shown: bool) -> None:
    """Show why this rank failed, and tell torchrun, which repeats the first failure as the last thing on the screen."""
    if shown:
        prefix = f"[rank {_rank()}] " if "RANK" in os.environ else ""
        sys.stderr.write("".join(f"{prefix}{line}\n" for line in text.splitlines()))
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if error_file:
        details = {"py_callstack": text, "timestamp": str(int(time.time()))}
        with open(error_file, "w", encoding="utf-8") as file:
            json.dump({"message": {"message": text, "extraInfo": details}}, file)
