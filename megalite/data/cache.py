"""Arrays computed once per file system and mapped by everyone afterwards.

An entry is a directory ``NAME-HASH/`` of ``.npy`` files and ``key.json``, the description its hash is made of. It is
built under another name and renamed when it is whole. A file lock, which the operating system releases when its holder
dies, lets one process build while the others on the same storage wait; no communicator is needed.
"""

import hashlib
import json
import os
import shutil
import socket
from typing import Any, Callable, Mapping

import numpy as np

from megalite.data.indexed import HEADER, IndexedDataset, bin_path, idx_path
from megalite.data.locks import locked
from megalite.errors import DataError
from megalite.log import logger

FORMAT = 1
"""Part of every key; raised when an array under the same key would come out different."""

_SAMPLED_BLOCKS = 64
_INDEX_BLOCK = 1 << 18
_TOKEN_BLOCK = 1 << 12

Arrays = dict[str, np.ndarray]


def content_fingerprint(dataset: IndexedDataset) -> str:
    """A hash of what a corpus holds, wherever it lies: sizes, counts, and blocks spread evenly over both files.

    An index of up to 16 MiB is hashed whole, so its cost does not grow with the corpus.
    """
    digest = hashlib.sha256(dataset.header.pack())
    _hash_blocks(digest, idx_path(dataset.prefix), HEADER.size, _INDEX_BLOCK)
    _hash_blocks(digest, bin_path(dataset.prefix), 0, _TOKEN_BLOCK)
    return digest.hexdigest()


def _hash_blocks(digest: Any, path: str, start: int, block: int) -> None:
    with open(path, "rb") as file:
        size = os.path.getsize(path)
        digest.update(size.to_bytes(8, "little"))
        span = max(0, size - start - block)
        count = min(_SAMPLED_BLOCKS, -(-(size - start) // block))
        for i in range(count):
            file.seek(start + span * i // max(1, count - 1))
            digest.update(file.read(block))


class IndexCache:
    """The entries in one directory, which need not be writable: what is not there is then built in memory."""

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = os.fspath(directory)

    def get(self, name: str, key: Mapping[str, Any], build: Callable[[], Arrays]) -> Arrays:
        """The arrays described by ``key`` (anything JSON takes), built by ``build`` if nobody has yet.

        They are mapped read-only, or are ``build``'s own where the directory takes no files.
        """
        description = json.dumps({"format": FORMAT, **key}, sort_keys=True, indent=1)
        entry = os.path.join(self.directory, f"{name}-{hashlib.sha256(description.encode()).hexdigest()[:32]}")
        if not os.path.isdir(entry):
            arrays = self._build_once(entry, description, build)
            if arrays is not None:
                return arrays
        return _load(entry)

    def _build_once(self, entry: str, description: str, build: Callable[[], Arrays]) -> Arrays | None:
        """Make sure that ``entry`` exists; or return the arrays where it cannot be written."""
        arrays = None
        try:
            os.makedirs(self.directory, exist_ok=True)
            with locked(entry + ".lock"):
                if not os.path.isdir(entry):
                    arrays = build()
                    _publish(entry, description, arrays)
        except OSError as error:
            logger.info(
                f"index cache {self.directory} takes no files ({error.strerror}): the indices stay in memory. "
                "--data-cache-path names another directory."
            )
            return build() if arrays is None else arrays
        return None


def _publish(entry: str, description: str, arrays: Arrays) -> None:
    """Write ``entry`` under another name, and rename it.

    The caller has its lock, which at least the processes of this host respect, so leftovers of this host are nobody's.
    """
    partial = f"{entry}.partial-{socket.gethostname()}"
    shutil.rmtree(partial, ignore_errors=True)
    os.mkdir(partial)
    try:
        for name, array in arrays.items():
            with open(os.path.join(partial, name + ".npy"), "wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())
        with open(os.path.join(partial, "key.json"), "w", encoding="utf-8") as file:
            file.write(description + "\n")
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
