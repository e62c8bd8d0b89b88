"""The whole state of a run, saved at one layout and loaded at another: every tensor bit for bit, for all rules."""

import functools
import zlib

import pytest
import torch

from megalite import plugins
from megalite.checkpoint.locate import find_checkpoint
from megalite.checkpoint.match import Strictness
from megalite.parallel.context import ParallelContext
from megalite.state import Box
from megalite.topology.mesh import Mesh
from megalite.train.engine import build_engine
from megalite.train.state import optimizer_pieces, parameter_pieces
from tests.checkpoint.states import manager_of
from tests.harness import run_world
from tests.parity.run import BASE

ZERO = {"use_distributed_optimizer": True}
LAYOUTS = {  # tp, pp, dp, further fields
    "one process": (1, 1, 1, {}),
    "tp 2, pp 2, sequence parallel": (2, 2, 1, {"sequence_parallel": True}),
    "dp 3, sharded optimizer": (1, 1, 3, ZERO),
    "tp 2, dp 2, sharded optimizer": (2, 1, 2, ZERO),
    "pp 3 of 2 virtual stages": (1, 3, 1, {"num_virtual_stages_per_pipeline_rank": 2}),
    "pp 2, dp 2, sharded optimizer": (1, 2, 2, ZERO),
    "tp 4": (4, 1, 1, {}),
    "dp 5": (1, 1, 5, {}),
}
WRITTEN_AT = list(LAYOUTS)[:6]
RULES = plugins.available("megalite.optim.rules")
RUNS = {  # name -> fields; the padding of 101 words to a multiple of the tensor parallel size is not stored
    **{rule: {"optimizer": rule, "fp64": False} for rule in RULES},
    "adam in bfloat16": {"fp64": False, "bf16": True, "untie_embeddings_and_output_weights": True},
}
THOROUGH = ("adam", "adafactor", "adam in bfloat16")
"""Read from every layout at every layout; the others' state is cut as one of these, so a third of the pairs will do."""
FEATURES = {"num_layers": 6, "vocab_size": 101, "micro_batch_size": 1}


def context_of(layout, rank, world_size):
    tp, pp, _, _ = LAYOUTS[layout]
    return ParallelContext(Mesh.from_world(world_size, tp, pp), rank, torch.device("cpu"))


def engine_of(layout, run, context):
    tp, pp, _, fields = LAYOUTS[layout]
    degrees = {"tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp}
    return build_engine(BASE.replace(**{**FEATURES, **degrees, **fields, **RUNS[run]}), context)


@functools.cache
def whole(name, shape):
    """The values of a whole tensor: random numbers that follow from its name."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))


def expected(piece):
    box = piece.box.inside(Box.whole(piece.global_shape))
    return whole(piece.name, piece.global_shape)[box].to(piece.tensor.dtype)


def fill_and_save(rank, world_size, layout, directory):
    context = context_of(layout, rank, world_size)
    for run in RUNS:
        engine = engine_of(layout, run, context)
        pieces = parameter_pieces(engine) + optimizer_pieces(engine, owned_only=True)
        for piece in pieces:
            piece.tensor.copy_(expected(piece))
        manager = manager_of(directory / run, context.world)
        manager.save(1, pieces, {}, "seed: 1\n")
        manager.close()


def load_and_compare(rank, world_size, layout, parent):
    """Load every checkpoint into the engines of this layout. Returns the names of tensors that this rank has seen."""
    context, seen = context_of(layout, rank, world_size), {}
    for run in RUNS:
        engine = engine_of(layout, run, context)
        pieces = parameter_pieces(engine) + optimizer_pieces(engine, owned_only=False)
        seen[run] = {piece.name for piece in pieces}
        shift, stride = (0, 1) if run in THOROUGH else (list(LAYOUTS).index(layout) % 3, 3)
        for written_at in WRITTEN_AT[shift::stride]:
            manager = manager_of(None, context.world, load=parent / written_at / run)
            for piece in pieces:
                piece.tensor.fill_(-3)
            manager.load(manager.resume(), pieces, Strictness())
            wrong = [piece.name for piece in pieces if not torch.equal(piece.tensor, expected(piece))]
            assert not wrong, f"{run}, written at {written_at}, on rank {rank}: {wrong}"
    return seen


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """One directory a layout, with one --save directory a run."""
    parent = tmp_path_factory.mktemp("layouts")
    for layout in WRITTEN_AT:
        run_world(fill_and_save, world_size_of(layout), layout, parent / layout)
    return parent


def world_size_of(layout):
    tp, pp, dp, _ = LAYOUTS[layout]
    return tp * pp * dp


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_read_by(checkpoints, layout):
    by_rank = run_world(load_and_compare, world_size_of(layout), layout, checkpoints)
    for run in RUNS:
        names = find_checkpoint(checkpoints / "one process" / run).store.names()
        assert set().union(*(seen[run] for seen in by_rank)) == set(names)
        assert any(name.startswith("optim.") for name in names)
