"""A lock that the operating system releases when its holder ends, however it ends."""

import contextlib
import fcntl
import os
from typing import Iterator


def open_locked(path: str, wait: bool) -> int:
    """Create or open ``path`` and lock it for this process: the descriptor, which holds the lock until it is closed.

    Raises BlockingIOError when another process holds it and ``wait`` is not set, and another OSError where the file
    system knows no locks. A former holder may have renamed or removed the file while we waited; then we hold the lock
    of a file that has left, and start anew.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock ``path``, waiting for it while another process holds it. The file goes afterwards."""
    descriptor = open_locked(path, wait=True)
    try:
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)
