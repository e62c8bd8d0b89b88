"""Which pipeline rank holds which virtual stage, and which units of the model each stage holds.

Stages are numbered along the model; stage ``chunk * pp + rank`` is chunk ``chunk`` of rank ``rank``, as in Megatron-LM.
"""

from dataclasses import dataclass
from typing import Sequence

from megalite.errors import ConfigError
from megalite.topology.layout import parse_layout

_UNEVEN_WAYS = (
    "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers or --pipeline-model-parallel-layout"
)


@dataclass(frozen=True)
class SplitOptions:
    """How to cut a model into ``pp`` x ``virtual`` stages."""

    pp: int = 1
    """Pipeline ranks."""
    virtual: int = 1
    """Virtual stages per rank."""
    first: int | None = None
    """Layers on the first rank, over all its stages (--decoder-first-pipeline-num-layers)."""
    last: int | None = None
    """Layers on the last rank, over all its stages (--decoder-last-pipeline-num-layers)."""
    count_embedding: bool = False
    """The embedding counts as a layer (--account-for-embedding-in-pipeline-split)."""
    count_head: bool = False
    """The head with its loss counts as a layer (--account-for-loss-in-pipeline-split)."""
    layout: str | None = None
    """What every stage holds (--pipeline-model-parallel-layout, :mod:`megalite.topology.layout`)."""

    @property
    def num_stages(self) -> int:
        return self.pp * self.virtual

    def __str__(self) -> str:
        if self.virtual == 1:
            return f"{self.pp} pipeline ranks"
        return f"{self.pp} pipeline ranks x {self.virtual} virtual stages = {self.num_stages}"

    @property
    def uneven(self) -> list[str]:
        """The flags given that set the layers of the first or last rank, with their values."""
        flags = {"--decoder-first-pipeline-num-layers": self.first, "--decoder-last-pipeline-num-layers": self.last}
        return [f"{flag} {value}" for flag, value in flags.items() if value is not None]

    @property
    def counted(self) -> list[str]:
        """The flags given that count something else as a layer."""
        flags = {
            "--account-for-embedding-in-pipeline-split": self.count_embedding,
            "--account-for-loss-in-pipeline-split": self.count_head,
        }
        return [flag for flag, given in flags.items() if given]


def owner(stage: int, pp: int) -> int:
    """Pipeline rank that holds virtual stage ``stage``."""
    return stage % pp


def stages_of(pp_rank: int, pp: int, virtual: int) -> tuple[int, ...]:
    """Virtual stages of a rank, in the order of its chunks."""
    return tuple(chunk * pp + pp_rank for chunk in range(virtual))


def split_layers(kinds: Sequence[str], options: SplitOptions) -> list[list[int]]:
    """Cut a model into virtual stages: indices into ``kinds`` per stage, together all of them, once, in order.

    ``kinds`` names the model's units: "embedding", any number of "layer", "head". Without a layout every stage gets
    layers, the first one also the embedding and the last one the head. Raises :class:`ConfigError` for a split that
    does not add up: no layer is ever dropped.
    """
    num_layers = len(kinds) - 2
    expected = ["embedding", *["layer"] * num_layers, "head"]
    assert list(kinds) == expected, "a model is an embedding, layers and a head, in this order"
    _check_one_way(options)
    if options.layout is not None:
        counts = _layout_counts(num_layers, options)
    elif options.uneven:
        counts = _uneven_counts(num_layers, options)
    else:
        counts = _even_counts(num_layers, options)
    starts = [sum(counts[:stage]) for stage in range(options.num_stages + 1)]
    return [list(range(start, stop)) for start, stop in zip(starts, starts[1:])]


def _check_one_way(options: SplitOptions) -> None:
    layout = [] if options.layout is None else ["--pipeline-model-parallel-layout"]
    given = [" and ".join(flags) for flags in (layout, options.uneven, options.counted) if flags]
    if len(given) > 1:
        raise ConfigError(
            f"the pipeline split must be described in one way; given {' as well as '.join(given)}: keep one of them."
        )


def _layout_counts(num_layers: int, options: SplitOptions) -> list[int]:
    stages = parse_layout(options.layout, num_layers, options.pp)
    if len(stages) != options.num_stages:
        raise ConfigError(
            f"--pipeline-model-parallel-layout must describe {options}; it describes {len(stages)}: add or remove '|'."
        )
    return [len(stage) for stage in stages]


def _even_counts(num_layers: int, options: SplitOptions) -> list[int]:
    """Units per stage when all hold as many layers, among which embedding and head may count."""
    per_stage, rest = divmod(num_layers + len(options.counted), options.num_stages)
    if rest or per_stage == 0:
        raise _not_divisible(num_layers, options)
    counts = [per_stage] * options.num_stages
    counts[0] += 0 if options.count_embedding else 1
    counts[-1] += 0 if options.count_head else 1
    return counts


def _not_divisible(num_layers: int, options: SplitOptions) -> ConfigError:
    extra = len(options.counted)
    below = (num_layers + extra) // options.num_stages * options.num_stages
    fitting = [str(total - extra) for total in (below, below + options.num_stages) if total > extra]
    counted = f" + {extra} for {' and '.join(options.counted)}" if extra else ""
    return ConfigError(
        f"num_layers ({num_layers}){counted} must be a multiple of {options}: use {' or '.join(fitting)} layers, or "
        f"cut unevenly with {_UNEVEN_WAYS}."
    )


def _uneven_counts(num_layers: int, options: SplitOptions) -> list[int]:
    """Units per stage when the first or last rank has a number of layers of its own and the others share the rest."""
    per_rank = _layers_per_rank(num_layers, options)
    for rank, layers in enumerate(per_rank):
        if layers % options.virtual:
            raise ConfigError(
                f"the layers of every pipeline rank must be a multiple of its virtual stages ({options.virtual}); rank "
                f"{rank} has {layers} of {num_layers}; given {' and '.join(options.uneven)}: change the numbers, or "
                f"give --pipeline-model-parallel-layout."
            )
    counts = [layers // options.virtual for layers in per_rank] * options.virtual
    counts[0] += 1
    counts[-1] += 1
    return counts


def _layers_per_rank(num_layers: int, options: SplitOptions) -> list[int]:
    own = [layers for layers in (options.first, options.last) if layers is not None]
    given = " and ".join(options.uneven)
    others, rest = options.pp - len(own), num_layers - sum(own)
    if options.pp < 2:
        raise ConfigError(
            f"a first or last rank of its own size needs at least 2 pipeline ranks; given {given} with {options.pp} "
            f"rank: leave it out, or raise --pipeline-model-parallel-size."
        )
    if min(own) < 1:
        raise ConfigError(
            f"a pipeline rank must hold at least 1 layer; given {given}: for a stage without layers use "
            f"--pipeline-model-parallel-layout."
        )
    if others == 0 and rest:
        raise ConfigError(
            f"two pipeline ranks must hold all {num_layers} layers; given {given}, which is {sum(own)}: leave out one "
            f"flag, or make them add up."
        )
    if others and (rest < others or rest % others):
        raise ConfigError(
            f"the layers that {given} leaves of {num_layers} must divide over the other {others} pipeline ranks, at "
            f"least 1 each; {rest} are left: change the numbers, or give --pipeline-model-parallel-layout."
        )
    per_rank = [rest // others if others else 0] * options.pp
    per_rank[0] = per_rank[0] if options.first is None else options.first
    per_rank[-1] = per_rank[-1] if options.last is None else options.last
    return per_rank
