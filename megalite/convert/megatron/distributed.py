"""Adam's state as Megatron-LM's distributed optimizer keeps it: flat buffers without names, in a file of their own."""

from dataclasses import dataclass, replace
from typing import Any, Callable, Iterator, Mapping

import torch

from megalite.convert.megatron.layout import OUTPUT, WORDS, RankKey
from megalite.errors import CheckpointError

DISTRIBUTED = "distrib_optim.pt"
MAIN = "param"
"""Our slot of float32 main parameters, and Megatron-LM's."""
DISTRIBUTED_SLOTS = ("exp_avg", "exp_avg_sq", MAIN)
_ALIGNMENT = 64
"""Elements to a multiple of which each parameter is placed in a bucket."""

Shapes = Mapping[RankKey, tuple[int, ...]]


@dataclass(frozen=True)
class Buckets:
    """How the distributed optimizer of a rank cut its first chunk; of the others each is one bucket."""

    size: int | None
    """Elements after which a new bucket begins; None: never."""
    alone: frozenset[str] = frozenset()
    """Names of parameters that have a bucket of their own: those tied across stages."""

    @staticmethod
    def of(arguments: dict[str, Any], pp: int, stages: int) -> "Buckets":
        """Of pipeline rank ``pp``. Only the first rank's gradients are reduced in several buckets, with overlap."""
        tied = stages > 1 and not arguments.get("untie_embeddings_and_output_weights")
        size = None
        if arguments.get("overlap_grad_reduce") and pp == 0:
            ranks = arguments.get("data_parallel_size", 1)
            size = arguments.get("ddp_bucket_size") or max(40_000_000, 1_000_000 * ranks)
        return Buckets(size, frozenset((WORDS, OUTPUT) if tied else ()))


def read_distributed_state(content: Any, shapes: Shapes, buckets: Buckets, where: str) -> dict[RankKey, torch.Tensor]:
    """The state in a rank's ``distrib_optim.pt``: flat buffers of each chunk, parameters in reverse order."""
    if not isinstance(content, dict) or not content.get("buckets_coalesced"):
        raise CheckpointError(
            f"{where} must hold coalesced buckets, as Megatron-LM writes since 2024. Add --drop-optimizer."
        )
    found: dict[RankKey, torch.Tensor] = {}
    for chunk, own, of_chunk in _chunks(shapes, buckets):
        buffers = content.get(chunk, {})
        places, numel = _places(own, of_chunk)
        if len(buffers) != 1 or (buffer := next(iter(buffers.values())))["numel_unpadded"] != numel:
            sizes = [entry["numel_unpadded"] for entry in buffers.values()]
            raise CheckpointError(
                f"{where}: the buffer of model chunk {chunk} must have {numel} elements; there are {sizes}. It was "
                "written with options that megalite does not know: add --drop-optimizer to take the parameters alone."
            )
        for key, start in places.items():
            size = torch.Size(own[key]).numel()
            for slot in DISTRIBUTED_SLOTS:
                found[replace(key, slot=slot)] = buffer[slot][start : start + size].view(own[key])
    return found


def _places(shapes: Shapes, buckets: Buckets) -> tuple[dict[RankKey, int], int]:
    """Where each parameter begins in the coalesced buffer, and the buffer's length."""
    places: dict[RankKey, int] = {}
    begin = end = 0  # Of the bucket being filled: its gaps for alignment are stored, those between buckets are not.
    for key, shape in reversed(shapes.items()):
        alone = key.name in buckets.alone
        if alone and end > begin:
            begin = end
        start = begin + -(-(end - begin) // _ALIGNMENT) * _ALIGNMENT
        places[key] = start
        end = start + torch.Size(shape).numel()
        if alone or (buckets.size is not None and end - begin >= buckets.size):
            begin = end
    return places, end


def distributed_state(
    shapes: Shapes, buckets: Buckets, dtype: torch.dtype, make: Callable[[RankKey], torch.Tensor]
) -> dict[Any, Any]:
    """The content of a rank's ``distrib_optim.pt``, for parameters of ``dtype``; ``make`` gives a slot of one."""
    content: dict[Any, Any] = {"buckets_coalesced": True}
    for chunk, own, of_chunk in _chunks(shapes, buckets):
        places, numel = _places(own, of_chunk)
        buffer: dict[str, Any] = {slot: torch.zeros(numel) for slot in DISTRIBUTED_SLOTS}
        for slot in DISTRIBUTED_SLOTS:
            for key, start in places.items():
                values = make(replace(key, slot=slot)).flatten()
                buffer[slot][start : start + values.numel()] = values
        content[chunk] = {(dtype, torch.float32): {**buffer, "numel_unpadded": numel}}
    return content


def _chunks(shapes: Shapes, buckets: Buckets) -> Iterator[tuple[int, Shapes, Buckets]]:
    """Each model chunk, its parameters, and how they are cut: only the first one's into several buckets."""
    for number in sorted({key.chunk for key in shapes}):
        own = {key: shape for key, shape in shapes.items() if key.chunk == number}
        yield number, own, buckets
        buckets = replace(buckets, size=None)
