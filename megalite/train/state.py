"""What of a run is saved besides the configuration, and under which names; the same at every layout."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Mapping

from megalite.checkpoint.piece import STATE_PREFIX, Piece, flat_pieces, param_piece
from megalite.checkpoint.shard import dtype_name
from megalite.checkpoint.store import Store
from megalite.errors import CheckpointError
from megalite.pipeline.stage import parameters_of
from megalite.train.engine import Engine

MAIN_PREFIX = f"{STATE_PREFIX}param."
"""What the names of main parameters begin with: the float32 copies of parameters in half precision."""


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
            raise CheckpointError(
                f"a checkpoint to resume from must hold {', '.join(missing)}; this one does not: use --finetune."
            )
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
        name = f"{STATE_PREFIX}{entry.slot}.{entry.spec.name}"
        pieces += flat_pieces(entry.spec, entry.tensor, entry.start, name)
    return pieces


def pieces_to_load(engine: Engine, store: Store, with_state: bool) -> list[Piece]:
    """The parameters, main ones too, and the rest of the optimizer's state if wanted, each under the name in ``store``
    that holds it most exactly.

    For a run in another precision than that which wrote ``store``: a float32 run takes its parameters from main ones,
    where there are any; a bfloat16 run takes its main ones from float32 parameters.
    """
    stored = frozenset(store.names())
    pieces = []
    for piece in parameter_pieces(engine):
        main = MAIN_PREFIX + piece.name
        as_it_is = piece.name in stored and store.dtype(piece.name) == dtype_name(piece.tensor.dtype)
        pieces.append(replace(piece, name=main) if main in stored and not as_it_is else piece)
    for piece in optimizer_pieces(engine, owned_only=False):
        if not piece.name.startswith(MAIN_PREFIX):
            pieces += [piece] if with_state else []
        elif piece.name in stored:
            pieces.append(piece)
        else:
            pieces.append(replace(piece, name=piece.name.removeprefix(MAIN_PREFIX)))
    return pieces


def is_optimizer_state(name: str) -> bool:
    """Whether a stored tensor is state of an update rule; main parameters are parameters."""
    return name.startswith(STATE_PREFIX) and not name.startswith(MAIN_PREFIX)
