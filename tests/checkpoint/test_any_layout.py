"""The whole state of a run, saved at one layout, loaded at another and saved there again: every tensor bit for bit."""

import pytest
import torch

from megalite.checkpoint.store import open_store
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from megalite.train.engine import build_engine
from megalite.train.state import optimizer_pieces, parameter_pieces
from tests.checkpoint.states import manager_of, world_group
from tests.harness import run_world
from tests.parity.run import BASE, gather_params, train_steps

LAYOUTS = {  # tp, pp, dp, further fields
    "one process": (1, 1, 1, {}),
    "tp 2, pp 2, sequence parallel": (2, 2, 1, {"sequence_parallel": True}),
    "dp 3, sharded optimizer": (1, 1, 3, {"use_distributed_optimizer": True}),
    "tp 2, dp 2, sharded optimizer": (2, 1, 2, {"use_distributed_optimizer": True}),
    "pp 2 of 2 virtual stages, dp 2": (1, 2, 2, {"num_virtual_stages_per_pipeline_rank": 2}),
}
BFLOAT16 = {"fp64": False, "bf16": True, "vocab_size": 101, "untie_embeddings_and_output_weights": True}
CASES = [  # fields of the run, the layout that writes it, slots of its optimizer
    ({"fp64": False, "vocab_size": 101}, "tp 2, pp 2, sequence parallel", {"exp_avg", "exp_avg_sq"}),
    (BFLOAT16, "dp 3, sharded optimizer", {"param", "exp_avg", "exp_avg_sq"}),
    ({"vocab_size": 128, "optimizer": "adafactor"}, "one process", {"row", "column", "exp_avg_sq"}),
]


def engine_of(layout, run, rank, world_size):
    tp, pp, _, fields = LAYOUTS[layout]
    config = BASE.replace(
        num_layers=4,
        micro_batch_size=1,
        global_batch_size=12,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        **fields,
        **run,
    )
    return build_engine(config, ParallelContext(Mesh.from_world(world_size, tp, pp), rank, torch.device("cpu")))


def save(engine, directory, rank, world_size):
    manager = manager_of(directory, world_group(rank, world_size))
    engine.strategy.wait_params()
    manager.save(2, parameter_pieces(engine) + optimizer_pieces(engine, owned_only=True), {}, "seed: 1\n")
    manager.close()


def train_and_save(rank, world_size, layout, run, directory):
    engine = engine_of(layout, run, rank, world_size)
    train_steps(engine, 2)
    save(engine, directory, rank, world_size)
    return gather_params(engine)


def load_and_save(rank, world_size, layout, run, source, directory):
    engine = engine_of(layout, run, rank, world_size)
    manager = manager_of(None, world_group(rank, world_size), load=source)
    manager.load(manager.resume(), parameter_pieces(engine) + optimizer_pieces(engine, owned_only=False))
    save(engine, directory, rank, world_size)


def world_size_of(layout):
    tp, pp, dp, _ = LAYOUTS[layout]
    return tp * pp * dp


@pytest.mark.parametrize("run, written_at, slots", CASES, ids=["float32", "bfloat16", "adafactor"])
def test_any_layout_reads_any_other(tmp_path, run, written_at, slots):
    params = run_world(train_and_save, world_size_of(written_at), written_at, run, tmp_path / "first")[0]
    first = open_store(tmp_path / "first" / "iter_0000002")
    state = [name for name in first.names() if name.startswith("optim.")]
    assert {name.split(".")[1] for name in state} == slots and all(first.read(name).any() for name in state)
    assert set(first.names()) == {*params, *state}
    for name, array in params.items():
        assert torch.equal(first.read(name).to(torch.from_numpy(array).dtype), torch.from_numpy(array)), name
    for number, layout in enumerate(LAYOUTS):
        directory = tmp_path / str(number)
        run_world(load_and_save, world_size_of(layout), layout, run, tmp_path / "first", directory)
        again = open_store(directory / "iter_0000002")
        assert again.names() == first.names()
        assert [name for name in first.names() if not torch.equal(again.read(name), first.read(name))] == [], layout
