"""One conversion: a source, written in another format, into a directory that appears when it is complete."""

import shutil
from pathlib import Path
from types import ModuleType

from megalite.checkpoint.directory import sync_directory
from megalite.convert.options import WriteOptions
from megalite.convert.progress import Progress
from megalite.convert.source import Source
from megalite.errors import CheckpointError


def convert(source: Source, directory: Path, target: ModuleType, options: WriteOptions = WriteOptions()) -> None:
    """Write ``source`` in the format ``target`` to ``directory``, which must not exist or be empty.

    An interrupted conversion leaves ``directory`` as it was. Raises :class:`CheckpointError` where it cannot be
    written.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CheckpointError(f"{directory} must not exist yet, or be an empty directory: choose another.")
    temporary = directory.parent / f".tmp-{directory.name}"
    progress = Progress()
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        target.write(source, temporary, options, progress)
        sync_directory(temporary)
        temporary.replace(directory)
        sync_directory(directory.parent)
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be written: {error}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    progress.finish()
