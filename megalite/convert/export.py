"""The Hugging Face directory beside each checkpoint of a run, and runs that begin with one."""

from pathlib import Path

from megalite.checkpoint.store import Store
from megalite.config import ModelConfig
from megalite.convert.extras import FOLDER, Extras
from megalite.convert.families import fitting_family
from megalite.convert.formats import huggingface
from megalite.convert.formats.megalite import MegaliteSource
from megalite.convert.options import ReadOptions, WriteOptions
from megalite.convert.progress import Progress
from megalite.convert.source import Source, WithoutOptimizer
from megalite.log import logger


def foreign_weights(load: str | None, step: int | None = None) -> Source | None:
    """The weights to begin with if ``--load`` names a Hugging Face directory; None if it does not."""
    if load is None or not huggingface.detect(Path(load)):
        return None
    return huggingface.open_source(Path(load), ReadOptions(step=step))


def check_exportable(model: ModelConfig) -> None:
    """Raise :class:`megalite.errors.ConfigError` if no Hugging Face family holds the model."""
    fitting_family(model, None)


def export_huggingface(store: Store, extras: Extras) -> None:
    """Write the parameters of a checkpoint into its folder :data:`FOLDER`, with the files that belong to the model.

    ``extras``: such files of what the run began with; those that its configuration names go first.
    """
    source = WithoutOptimizer(MegaliteSource(store))
    source.extras = {**extras, **source.extras}
    folder = store.directory / FOLDER
    folder.mkdir()
    huggingface.write(source, folder, WriteOptions(), Progress("exported", show=logger.info))
