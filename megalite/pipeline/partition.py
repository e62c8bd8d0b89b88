"""Partition: the model's list of units cut into virtual stages."""

from typing import Sequence

from megalite.config import Config
from megalite.nn.unit import Unit
from megalite.topology.placement import SplitOptions, split_layers


def partition(units: Sequence[Unit], config: Config) -> list[list[Unit]]:
    """The units of each virtual stage, in order of stage; raises ConfigError if the layers cannot be split as asked."""
    return [[units[i] for i in stage] for stage in split_layers([unit.kind for unit in units], _split_options(config))]


def check_split(config: Config) -> None:
    """Raise ConfigError if the layers cannot be split as asked; nothing is built."""
    split_layers(["embedding", *["layer"] * config.model.num_layers, "head"], _split_options(config))


def _split_options(config: Config) -> SplitOptions:
    parallel = config.parallel
    return SplitOptions(
        pp=parallel.pipeline_model_parallel_size,
        virtual=config.virtual_stages,
        first=parallel.decoder_first_pipeline_num_layers,
        last=parallel.decoder_last_pipeline_num_layers,
        count_embedding=parallel.account_for_embedding_in_pipeline_split,
        count_head=parallel.account_for_loss_in_pipeline_split,
        layout=parallel.pipeline_model_parallel_layout,
    )


def tied_stages(cut: Sequence[Sequence[Unit]]) -> dict[str, tuple[int, int]]:
    """For each tied parameter, by name, the virtual stages of its first holder and of the unit that shares it."""
    ties = {}
    for stage, units in enumerate(cut):
        for unit in units:
            for name in unit.ties:
                home = next(s for s, others in enumerate(cut) for u in others if name.startswith(f"{u.name}."))
                ties[name] = (home, stage)
    return ties
