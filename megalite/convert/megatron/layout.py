"""Where a model's tensors lie in the files of Megatron-LM's ranks: stages, names of Megatron Core, slices."""

import re
from dataclasses import dataclass, replace
from typing import Iterable, Iterator

from megalite.config import ModelConfig
from megalite.convert.layout import Layout
from megalite.convert.parameters import parameter_shapes
from megalite.state import Box

WORDS = "embedding.word_embeddings.weight"
OUTPUT = "output_layer.weight"
TRANSFORMER_ENGINE = "transformer_engine"

# Our name in a layer -> Megatron's, in the order in which it registers them: its optimizer's state has no names.
_LAYER = (
    ("attention.out", "self_attention.linear_proj"),
    ("attention.qkv", "self_attention.linear_qkv"),
    ("attention.q_norm", "self_attention.q_layernorm"),
    ("attention.k_norm", "self_attention.k_layernorm"),
    ("mlp.up", "mlp.linear_fc1"),
    ("mlp.down", "mlp.linear_fc2"),
)
_LOCAL_NORMS = {"norm1": "input_layernorm.", "norm2": "pre_mlp_layernorm."}
_FUSED_NORMS = {"norm1": "self_attention.linear_qkv.layer_norm_", "norm2": "mlp.linear_fc1.layer_norm_"}
"""Transformer Engine keeps a norm in the linear layer that reads it."""
_NORM_BEFORE = {
    "local": {"norm1": "attention.out", "norm2": "mlp.up"},
    TRANSFORMER_ENGINE: {"norm1": "attention.qkv", "norm2": "mlp.up"},
}


@dataclass(frozen=True)
class RankKey:
    """A tensor in a rank's file: of the model chunk ``chunk``, or the optimizer's ``slot`` of that tensor."""

    tp: int
    pp: int
    chunk: int
    name: str
    slot: str | None = None

    def __str__(self) -> str:
        return f"{self.name} of rank {self.tp}, {self.pp}"


@dataclass(frozen=True)
class Grid:
    """The ranks of a checkpoint and the layers that each of their virtual stages holds."""

    tp: int
    pp: int
    layers: tuple[int, ...]
    """Layers of each virtual stage in the model's order: stage ``chunk * pp + rank`` is that chunk of that rank."""
    transformer_impl: str = TRANSFORMER_ENGINE

    @property
    def virtual(self) -> int:
        return len(self.layers) // self.pp

    def stages(self) -> Iterator[tuple[int, int, range]]:
        """(pipeline rank, chunk, global numbers of the layers) of each virtual stage, in the model's order."""
        first = 0
        for stage, count in enumerate(self.layers):
            yield stage % self.pp, stage // self.pp, range(first, first + count)
            first += count

    def ranks(self) -> Iterator[tuple[int, int]]:
        """(tensor rank, pipeline rank) of every file."""
        return ((tp, pp) for pp in range(self.pp) for tp in range(self.tp))


def grid_of(keys: Iterable[RankKey], tp: int, pp: int) -> Grid:
    """The grid of the tensors that are there: Megatron-LM can divide layers in many ways."""
    keys = list(keys)
    virtual = 1 + max((key.chunk for key in keys), default=0)
    layers: list[set[int]] = [set() for _ in range(pp * virtual)]
    for key in keys:
        if match := re.match(r"decoder\.layers\.(\d+)\.", key.name):
            layers[key.chunk * pp + key.pp].add(int(match[1]))
    fused = any(key.name.endswith("layer_norm_weight") for key in keys)
    return Grid(tp, pp, tuple(map(len, layers)), TRANSFORMER_ENGINE if fused else "local")


def rank_directory(tp: int, pp: int, pp_size: int) -> str:
    """Name of a rank's directory."""
    return f"mp_rank_{tp:02d}" + (f"_{pp:03d}" if pp_size > 1 else "")


def model_layout(model: ModelConfig, grid: Grid, padded_vocab_size: int) -> Layout:
    """All parameters on all ranks, those of a rank in Megatron's order; replicas come after what they repeat."""
    table = Layout(parameter_shapes(model))
    for tp in range(grid.tp):
        for pp, chunk, layers in grid.stages():
            stage = chunk * grid.pp + pp
            _add_stage(_Rank(table, model, grid, RankKey(tp, pp, chunk, "")), layers, stage, padded_vocab_size)
    return table


@dataclass(frozen=True)
class _Rank:
    """One model chunk of one rank, to add its tensors to the table."""

    table: Layout
    model: ModelConfig
    grid: Grid
    place: RankKey

    def whole(self, name: str, key: str) -> None:
        """A replicated tensor."""
        self.table.add(name, replace(self.place, name=key))

    def slice(self, name: str, key: str, dim: int, matrix_dims: int) -> None:
        """This rank's part of dim ``dim``, flattened to ``matrix_dims`` dims from the right."""
        shape, tp = self.table.shapes[name], self.grid.tp
        size = shape[dim] // tp
        offset = tuple(self.place.tp * size if d == dim else 0 for d in range(len(shape)))
        extent = tuple(size if d == dim else n for d, n in enumerate(shape))
        kept = extent[len(extent) - matrix_dims + 1 :]
        rows = Box.whole(extent[: len(extent) - matrix_dims + 1]).numel
        self.table.add(name, replace(self.place, name=key), (rows, *kept), box=Box(offset, extent))

    def vocabulary(self, name: str, key: str, padded: int) -> None:
        """This rank's rows of a matrix over the vocabulary; Megatron pads it, and the padding is zero."""
        vocab_size, hidden = self.table.shapes[name]
        rows = padded // self.grid.tp
        start = min(self.place.tp * rows, vocab_size)
        real = min(vocab_size - start, rows)
        box, inside = Box((start, 0), (real, hidden)), Box((0, 0), (real, hidden))
        self.table.add(name, replace(self.place, name=key), (rows, hidden), box=box, foreign_box=inside)


def _add_stage(rank: _Rank, layers: range, stage: int, padded: int) -> None:
    first, last = stage == 0, stage == len(rank.grid.layers) - 1
    if first:
        rank.vocabulary("embedding.word.weight", WORDS, padded)
        if rank.model.position_embedding_type == "learned_absolute":
            rank.whole("embedding.position.weight", "embedding.position_embeddings.weight")
    for local, index in enumerate(layers):
        _add_layer(rank, f"layers.{index}", f"decoder.layers.{local}")
    if last:
        _add_norm(rank, "final_norm", "decoder.final_layernorm.")
        if not rank.model.tied:
            rank.vocabulary("head.weight", OUTPUT, padded)
        elif not first:
            rank.vocabulary("embedding.word.weight", OUTPUT, padded)


def _add_layer(rank: _Rank, ours: str, theirs: str) -> None:
    fused = rank.grid.transformer_impl == TRANSFORMER_ENGINE
    norms, before = (_FUSED_NORMS if fused else _LOCAL_NORMS), _NORM_BEFORE[rank.grid.transformer_impl]
    for name, key in _LAYER:
        for norm in [norm for norm in norms if before[norm] == name]:
            _add_norm(rank, f"{ours}.{norm}", f"{theirs}.{norms[norm]}")
        if name.endswith("_norm"):
            _add_norm(rank, f"{ours}.{name}", f"{theirs}.{key}.")
        else:
            _add_linear(rank, f"{ours}.{name}", f"{theirs}.{key}", row_parallel=name in ("attention.out", "mlp.down"))


def _add_norm(rank: _Rank, name: str, key: str) -> None:
    for kind in ("weight", "bias"):
        if f"{name}.{kind}" in rank.table.shapes:
            rank.whole(f"{name}.{kind}", f"{key}{kind}")


def _add_linear(rank: _Rank, name: str, key: str, row_parallel: bool) -> None:
    weight, bias = f"{name}.weight", f"{name}.bias"
    if row_parallel:
        rank.slice(weight, f"{key}.weight", dim=1, matrix_dims=2)
        if bias in rank.table.shapes:
            rank.whole(bias, f"{key}.bias")
        return
    # Gated: each rank has its rows of the gate, then its rows of the other half. Else the first dim is cut.
    dim = 1 if name.endswith("mlp.up") and len(rank.table.shapes[weight]) == 3 else 0
    rank.slice(weight, f"{key}.weight", dim, matrix_dims=2)
    if bias in rank.table.shapes:
        rank.slice(bias, f"{key}.bias", dim, matrix_dims=1)


def with_optimizer(table: Layout, slots: tuple[str, ...]) -> Layout:
    """The same table with the optimizer's ``slots`` of every parameter, each where its parameter is."""
    shapes = {f"optim.{slot}.{name}": shape for slot in slots for name, shape in table.shapes.items()}
    whole = Layout({**table.shapes, **shapes})
    for part in table.parts:
        common = {"box": part.box, "foreign_box": part.foreign_box, "split": part.split, "order": part.order}
        foreign_shape = table.foreign_shapes[part.key]
        whole.add(part.name, part.key, foreign_shape, **common)
        for slot in slots:
            whole.add(f"optim.{slot}.{part.name}", replace(part.key, slot=slot), foreign_shape, **common)
    return whole
