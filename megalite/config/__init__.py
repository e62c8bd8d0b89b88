"""The configuration of a run: frozen groups of fields, the command line that fills them and the rules they must
keep."""

from megalite.config.checkpoint import CheckpointConfig
from megalite.config.data import DataConfig
from megalite.config.logs import LoggingConfig
from megalite.config.model import ModelConfig
from megalite.config.optimizer import OptimizerConfig
from megalite.config.parallel import ParallelConfig
from megalite.config.root import Config
from megalite.config.training import TrainingConfig

__all__ = [
    "CheckpointConfig",
    "Config",
    "DataConfig",
    "LoggingConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "TrainingConfig",
]
