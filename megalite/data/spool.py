"""Files that grow at their end, and that a later process may continue from a size known to be right."""

import os
from pathlib import Path
from typing import BinaryIO

from megalite.errors import DataError


def open_spool(path: str, size: int) -> BinaryIO:
    """The file ``path``, created where it is not there, to be continued behind its first ``size`` bytes."""
    Path(path).touch()
    return cut_to(open(path, "r+b", buffering=1 << 16), size, path)


def cut_to(file: BinaryIO, size: int, path: str) -> BinaryIO:
    """``file``, whose name is ``path``, cut to ``size`` bytes and placed behind them; DataError when it holds fewer."""
    actual = os.fstat(file.fileno()).st_size
    if actual < size:
        file.close()
        raise DataError(
            f"{path} must hold at least the {size} bytes that an interrupted run has recorded; it holds {actual}: "
            "remove the record of that run, *.resume.json, to start anew."
        )
    file.truncate(size)
    file.seek(size)
    return file
