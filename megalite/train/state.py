"""What of a run is saved besides the configuration, and under which names; the same at every layout."""

from dataclasses import asdict, dataclass
from typing import Any, Mapping

from megalite.checkpoint.piece import Piece, flat_pieces, param_piece
from megalite.errors import CheckpointError
from megalite.pipeline.stage import parameters_of
from megalite.train.engine import Engine


@dataclass
class Progress:
    """How far a run has come."""

    iteration: int = 0
    consumed_samples: int = 0
    """Samples read from the stream, those of skipped steps included."""
    updated_samples: int = 0
    """Samples of the steps that moved the parameters: what the learning rate is a function of."""
    num_updates: int = 0

    def to_meta(self) -> dict[str, int]:
        """As plain numbers, for the checkpoint."""
        return asdict(self)

    @staticmethod
    def from_meta(meta: Mapping[str, Any]) -> "Progress":
        """Read back; raises :class:`CheckpointError` if a counter is missing."""
        missing = [name for name in Progress.__dataclass_fields__ if name not in meta]
        if missing:
            raise CheckpointError(f"a checkpoint to resume from must hold {', '.join(missing)}; this one does not: use --finetune.")
        return Progress(**{name: int(meta[name]) for name in Progress.__dataclass_fields__})


def parameter_pieces(engine: Engine) -> list[Piece]:
    """The model's parameters, under their canonical names, in the model's dtype."""
    mesh, coords = engine.context.mesh, engine.context.coords
    pieces = []
    for parameter in parameters_of(engine.stages):
        if parameter.spec.sharded:
            replica, replicas = coords.dp, mesh.dp
        else:
            replica, replicas = coords.dp * mesh.tp + coords.tp, mesh.dp * mesh.tp
        pieces.append(param_piece(parameter.spec, parameter.detach(), replica, replicas))
    return pieces


def optimizer_pieces(engine: Engine, owned_only: bool) -> list[Piece]:
    """The state of the update rule as ``optim.{slot}.{parameter}``; with ``owned_only`` what this rank writes.

    Main parameters are a slot of their own where they are not the model's.
    """
    pieces = []
    for entry in engine.optimizer.state_entries(owned_only):
        pieces += flat_pieces(entry.spec, entry.tensor, entry.start, f"optim.{entry.slot}.{entry.spec.name}")
    return pieces
