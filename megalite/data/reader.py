"""How the bytes of corpora are read: every access to a ``.bin`` or ``.idx`` file goes through this class."""

import mmap
import os

import numpy as np


class MmapReader:
    """Arrays straight from the pages of a file, without copying. Picklable: it maps the file again.

    Opening maps the file and reads nothing; what is read later stays in the page cache, which all processes of a host
    share.
    """

    def __init__(self, path: str):
        self.path = path
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            # A map of no bytes is an error of the operating system, an empty corpus is none.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""

    def read(self, dtype: np.dtype, count: int, offset: int) -> np.ndarray:
        """``count`` elements from byte ``offset`` on: a read-only view."""
        return np.frombuffer(self._bytes, dtype, count, offset) if count else np.empty(0, dtype)

    def __reduce__(self) -> tuple:
        return MmapReader, (self.path,)
