"""A lock that the operating system releases when its holder ends, however it ends."""

import contextlib
import errno
import fcntl
import os
from typing import Iterator

_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL}


def try_lock(descriptor: int, wait: bool) -> bool:
    """Lock an open file for this process alone; False when another holds it and ``wait`` is not set.

    On a file system without locks it succeeds at once: callers publish by renaming, so what is lost there is only
    that work may be done twice.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return True


def open_locked(path: str, wait: bool) -> int | None:
    """Create or open ``path`` and lock it: a descriptor, or None when another process holds it and ``wait`` is not set.

    The file may be renamed or removed by the former holder while we wait for it; then the lock is on a file that has
    left, and we start anew.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not try_lock(descriptor, wait):
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock ``path``, waiting for it as long as another process lives that holds it. The file goes afterwards."""
    descriptor = open_locked(path, wait=True)
    assert descriptor is not None, "a waiting lock is always obtained"
    try:
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)
