"""Do the tensors of a checkpoint of Megatron-LM's make up the model that its arguments describe?"""

from pathlib import Path
from typing import Mapping

from megalite.convert.megatron.layout import Grid, RankKey
from megalite.errors import CheckpointError

Shapes = Mapping[RankKey, tuple[int, ...]]


def check_fit(directory: Path, wanted: Shapes, found: Shapes) -> None:
    """Raise :class:`CheckpointError` that lists what is missing, not known or of another shape, if anything is."""
    unfit = [
        f"{key.name} is {found[key]}, not {shape}" for key, shape in wanted.items() if found.get(key, shape) != shape
    ]
    problems = [
        f"\n  {title}: {entries[0]}" + (f" and {len(entries) - 1} more" if entries[1:] else "")
        for title, entries in (
            ("missing", [str(key) for key in wanted if key not in found]),
            ("not known", [str(key) for key in found if key not in wanted]),
            ("of another shape", unfit),
        )
        if entries
    ]
    if problems:
        raise CheckpointError(f"{directory} does not hold the model of its args:{''.join(problems)}")


def check_num_layers(num_layers: int, grid: Grid, where: str) -> None:
    """Raise :class:`CheckpointError` unless the files hold as many layers as the arguments say."""
    if sum(grid.layers) != num_layers:
        raise CheckpointError(
            f"{where}: args.num_layers ({num_layers}) must be the number of layers in the files ({sum(grid.layers)})."
        )
