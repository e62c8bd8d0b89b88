"""The whole configuration of a run: one frozen group per topic, each field one flag."""

import dataclasses
from dataclasses import dataclass, field

from megalite.config.checkpoint import CheckpointConfig
from megalite.config.data import DataConfig
from megalite.config.logs import LoggingConfig
from megalite.config.model import ModelConfig
from megalite.config.optimizer import OptimizerConfig
from megalite.config.parallel import ParallelConfig
from megalite.config.training import TrainingConfig
from megalite.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run. Field names are unique over all groups, so a flat name says which field is meant."""

    model: ModelConfig
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)

    def replace(self, **fields: object) -> "Config":
        """A copy with the given fields changed, each by its flat name: ``config.replace(seed=1, hidden_size=64)``."""
        rest = dict(fields)
        groups = {}
        for group in dataclasses.fields(self):
            old = getattr(self, group.name)
            own = {name: rest.pop(name) for name in list(rest) if name in old.__dataclass_fields__}
            groups[group.name] = dataclasses.replace(old, **own)
        assert not rest, f"no group of the configuration has the fields {sorted(rest)}"
        return Config(**groups)

    @property
    def virtual_stages(self) -> int:
        """Virtual pipeline stages per rank, from whichever of the three flags is given.

        Raises :class:`ConfigError` when layers or stages do not divide evenly.
        """
        parallel, pp = self.parallel, self.parallel.pipeline_model_parallel_size
        if parallel.num_virtual_stages_per_pipeline_rank is not None:
            return parallel.num_virtual_stages_per_pipeline_rank
        if parallel.pipeline_model_parallel_layout is not None:
            return self._virtual_stages_from_layout()
        if parallel.num_layers_per_virtual_pipeline_stage is not None:
            return self._virtual_stages_from_layers()
        return 1

    def _virtual_stages_from_layout(self) -> int:
        pp, layout = self.parallel.pipeline_model_parallel_size, self.parallel.pipeline_model_parallel_layout
        stages = self.parallel.layout_num_stages
        if stages is not None and stages % pp:
            raise ConfigError(
                "pipeline_model_parallel_layout must have a number of stages divisible by pipeline_model_parallel_size "
                f"({pp}); {layout} has {stages}: add or remove |, the end of a stage."
            )
        return 1 if stages is None else stages // pp

    def _virtual_stages_from_layers(self) -> int:
        parallel, per_stage = self.parallel, self.parallel.num_layers_per_virtual_pipeline_stage
        ends = (parallel.decoder_first_pipeline_num_layers, parallel.decoder_last_pipeline_num_layers)
        own = [layers for layers in ends if layers is not None]
        layers, ranks = self.model.num_layers - sum(own), parallel.pipeline_model_parallel_size - len(own)
        layers += parallel.account_for_embedding_in_pipeline_split + parallel.account_for_loss_in_pipeline_split
        if ranks < 1 or layers < 1 or layers % (ranks * per_stage):
            raise ConfigError(
                f"num_layers_per_virtual_pipeline_stage ({per_stage}) must divide the layers of each rank; given "
                f"{layers} layers (with the embedding and the loss where they count) for {max(ranks, 0)} ranks to "
                "share evenly: change one of them, or give --num-virtual-stages-per-pipeline-rank or "
                "--pipeline-model-parallel-layout."
            )
        return layers // (ranks * per_stage)
