"""Arrays computed once per file system and mapped by everyone afterwards.

An entry is a directory ``NAME-HASH/`` of ``.npy`` files and ``key.json``, the description its hash is made of. It is
built under another name and renamed when it is whole. A file lock, which the operating system releases when its holder
dies, lets one process build while the others on the same storage wait; no communicator is needed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
from typing import Any, Callable, Mapping

import numpy as np

from megalite.data.locks import locked
from megalite.errors import DataError
from megalite.log import logger

FORMAT = 1
"""Part of every key; raised when an array under the same key would come out different."""

Arrays = dict[str, np.ndarray]


class IndexCache:
    """The entries in one directory, which need not be writable: what is not there is then built in memory."""

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = os.fspath(directory)

    def get(self, name: str, key: Mapping[str, Any], build: Callable[[], Arrays]) -> "CachedArrays":
        """The arrays described by ``key`` (anything JSON takes), to be built by ``build`` if nobody has yet."""
        description = json.dumps({"format": FORMAT, **key}, sort_keys=True, indent=1)
        entry = f"{name}-{hashlib.sha256(description.encode()).hexdigest()[:32]}"
        return CachedArrays(os.path.join(self.directory, entry), description, build)


class CachedArrays:
    """Arrays by name, mapped read-only when one is first asked for; ``build``'s own where the directory takes no files.

    Until then nothing is opened, so that a start with hundreds of entries that are there costs next to nothing.
    """

    def __init__(self, entry: str, description: str, build: Callable[[], Arrays]):
        self._entry, self._description, self._build = entry, description, build
        self._arrays: Arrays | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        if self._arrays is None:
            self.prepare()
            self._arrays = self._arrays or _load(self._entry)
        return self._arrays[name]

    def prepare(self) -> None:
        """Make sure that the arrays exist, on disk or else in memory; for one thread at a time."""
        if self._arrays is not None or os.path.isdir(self._entry):
            return
        arrays = None
        try:
            os.makedirs(os.path.dirname(self._entry), exist_ok=True)
            with locked(self._entry + ".lock"):
                if not os.path.isdir(self._entry):
                    arrays = self._build()
                    _publish(self._entry, self._description, arrays)
        except OSError as error:
            logger.info(
                f"index cache {os.path.dirname(self._entry)} takes no files ({error.strerror}): the indices stay in "
                "memory. --data-cache-path names another directory."
            )
            self._arrays = self._build() if arrays is None else arrays


def _publish(entry: str, description: str, arrays: Arrays) -> None:
    """Write ``entry`` under another name, and rename it.

    The caller has its lock, which at least the processes of this host respect, so leftovers of this host are nobody's.
    """
    partial = f"{entry}.partial-{socket.gethostname()}"
    shutil.rmtree(partial, ignore_errors=True)
    os.mkdir(partial)
    try:
        with contextlib.ExitStack() as files:
            # Forced to disk together: the first wait then does most of the work of the others.
            written = [files.enter_context(open(os.path.join(partial, name + ".npy"), "wb")) for name in arrays]
            for file, array in zip(written, arrays.values()):
                np.save(file, array)
            written.append(files.enter_context(open(os.path.join(partial, "key.json"), "wb")))
            written[-1].write(description.encode() + b"\n")
            for file in written:
                file.flush()
            for file in written:
                os.fsync(file.fileno())
        os.rename(partial, entry)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        another_host_was_first = isinstance(error, OSError) and os.path.isdir(entry)
        if not another_host_was_first:
            raise


def _load(entry: str) -> Arrays:
    names = sorted(name for name in os.listdir(entry) if name.endswith(".npy"))
    try:
        return {name.removesuffix(".npy"): np.load(os.path.join(entry, name), mmap_mode="r") for name in names}
    except (ValueError, EOFError) as error:
        raise DataError(
            f"{entry} must be an index cache written by megalite; {error}: remove that directory, it will be "
            "built again."
        ) from error
