"""The lock of a --save directory: one job writes to it at a time."""

import errno
import fcntl
import os
import socket
from pathlib import Path

from megalite.errors import CheckpointError

LOCK = ".lock"
_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


class DirectoryLock:
    """Holds ``directory/.lock`` until :meth:`release` or the end of the process, however it ends.

    Raises :class:`CheckpointError` if another process holds it, and :class:`OSError` if the directory cannot be
    written to.
    """

    def __init__(self, directory: Path):
        self._descriptor: int | None = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # A record lock rather than flock: forked data-loading workers do not inherit it, so that one which
            # outlives a killed job by some seconds does not keep its restart out.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return  # A file system without locks: two jobs are then the user's to avoid.
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            self.release()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise CheckpointError(
                f"one job at a time can write to --save {directory}; {holder or 'another process'} is writing to it: "
                "end that job, or choose another directory."
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Let other jobs write; the file stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
