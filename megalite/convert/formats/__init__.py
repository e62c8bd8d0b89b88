"""Formats of checkpoints. The directory is the registry: a new format is one new file.

A file ``NAME.py`` has

- ``detect(directory) -> bool``: whether the directory holds such a checkpoint;
- ``open_source(directory, options) -> Source``: read it;
- ``write(source, directory, options, progress)``: write one into an existing, empty directory; a format that is read
  only has none.
"""

from pathlib import Path
from types import ModuleType

from megalite import plugins
from megalite.checkpoint.index import describe
from megalite.convert.options import ReadOptions
from megalite.convert.source import Source
from megalite.errors import CheckpointError


def load_format(name: str, flag: str) -> ModuleType:
    """The format that a flag names."""
    return plugins.load(__name__, name, flag)


def open_checkpoint(directory: Path, name: str | None = None, options: ReadOptions = ReadOptions()) -> Source:
    """Open a checkpoint of the format ``name``, or of whichever it is.

    Raises :class:`CheckpointError` if it is of none, or damaged.
    """
    if not directory.is_dir():
        raise CheckpointError(f"{directory} must be a directory with a checkpoint; it does not exist.")
    if name is not None:
        return load_format(name, "--load-format").open_source(directory, options)
    formats = plugins.available(__name__)
    for candidate in formats:
        module = plugins.load(__name__, candidate, "--load-format")
        if module.detect(directory):
            return module.open_source(directory, options)
    raise CheckpointError(
        f"{directory} must hold a checkpoint of one of the formats {', '.join(formats)}; {describe(directory)}."
    )
