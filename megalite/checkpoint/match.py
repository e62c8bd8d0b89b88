"""Does a checkpoint fit the model? Every difference of every rank, listed together before anything is read."""

from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

from megalite.checkpoint.agree import shared_error
from megalite.checkpoint.piece import Piece
from megalite.checkpoint.shard import dtype_name
from megalite.checkpoint.store import CONFIG, Store
from megalite.log import logger
from megalite.parallel.collectives import broadcast_object, gather_objects_to
from megalite.parallel.group import Group

_SHOWN = 20

Wanted = dict[str, tuple[tuple[int, ...], str]]
"""Global shape and dtype of every tensor by name."""


@dataclass(frozen=True)
class Strictness:
    """What a checkpoint may lack or have besides, compared with the model."""

    unread: Callable[[str], bool] = lambda name: False
    """Of which tensors of the checkpoint it is no surprise that the model does not want them."""
    missing: bool = True
    """Missing tensors are an error. If not set they are a warning, and keep their values."""
    surplus: bool = True
    """Surplus tensors are an error. If not set they are a warning."""
    convert: bool = False
    """Tensors may be stored in another dtype than the model's."""


def readable_pieces(store: Store, pieces: Sequence[Piece], group: Group, strictness: Strictness) -> list[Piece]:
    """The pieces of this rank that the checkpoint has, after comparing the names that all ranks want with its own.

    Raises the same :class:`CheckpointError` on every rank if tensors are missing, surplus or of another shape or
    dtype, as far as ``strictness`` goes.
    """
    local: Wanted = {piece.name: (piece.global_shape, dtype_name(piece.tensor.dtype)) for piece in pieces}
    of_all_ranks = gather_objects_to(local, group)
    comparison = _compare(store, of_all_ranks, strictness) if of_all_ranks is not None else None
    missing, surplus, unfit = broadcast_object(comparison, group)
    absent = missing + surplus
    if unfit or (missing and strictness.missing) or (surplus and strictness.surplus):
        # Ours has a config.yaml, a Hugging Face directory a config.json.
        told = [path for name in (CONFIG, "config.json") if (path := store.directory / name).is_file()]
        where = f": its configuration is {told[0]}" if told else ""
        raise shared_error(
            f"{store.directory} does not fit the model:{absent}{unfit}\nUse the model that wrote it{where}."
        )
    if absent and group.rank == 0:
        kept = "missing tensors keep their values" if missing else "the model does not want all of it"
        logger.warning(f"{store.directory} does not fit the model; {kept}:{absent}")
    stored = frozenset(store.names())
    return [piece for piece in pieces if piece.name in stored]


def _compare(store: Store, wanted_by_rank: Sequence[Wanted], strictness: Strictness) -> tuple[str, str, str]:
    """Listings of the tensors that are missing, surplus, and different; empty where there are none."""
    wanted: Wanted = {}
    for names in wanted_by_rank:
        wanted.update(names)
    stored: Wanted = {name: (store.shape(name), store.dtype(name)) for name in store.names()}
    missing = _listing("missing", sorted(wanted.keys() - stored.keys()))
    surplus = _listing("surplus", [n for n in stored if n not in wanted and not strictness.unread(n)])
    unfit = _listing("of another shape", _differences(stored, wanted, 0))
    if not strictness.convert:
        unfit += _listing("of another dtype", _differences(stored, wanted, 1))
    return missing, surplus, unfit


def _differences(stored: Wanted, wanted: Wanted, field: int) -> list[str]:
    return [
        f"{name}: {stored[name][field]} in the checkpoint, {wanted[name][field]} in the model"
        for name in sorted(stored.keys() & wanted.keys())
        if stored[name][field] != wanted[name][field]
    ]


def _listing(title: str, entries: Iterable[str]) -> str:
    entries = list(entries)
    if not entries:
        return ""
    more = f"\n    and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return f"\n  {title} ({len(entries)}):" + "".join(f"\n    {entry}" for entry in entries[:_SHOWN]) + more
