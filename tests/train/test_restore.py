"""Resuming in another precision: main parameters and the model's stand in for each other without a rounding."""

import pytest
import torch

from megalite.checkpoint.store import open_store
from megalite.errors import CheckpointError
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from megalite.train.checkpointing import Checkpointing
from megalite.train.engine import build_engine
from megalite.train.state import Progress, is_optimizer_state
from megalite.train.step import check_replicas
from tests.harness import run_world
from tests.parity.run import BASE, train_steps

STEPS = 3
PRECISIONS = {"float32": {}, "bfloat16": {"bf16": True}, "float16": {"fp16": True, "initial_loss_scale": 256.0}}


def run_of(precision, rank, world_size, **fields):
    """An engine, its scaler and the checkpoints of a small run; two ranks share the optimizer's state."""
    sizes = {"num_layers": 2, "vocab_size": 101, "global_batch_size": 4, "micro_batch_size": 1, "save_interval": 100}
    precision_of_run = {"fp64": False, **PRECISIONS[precision]}
    config = BASE.replace(use_distributed_optimizer=world_size > 1, **{**sizes, **precision_of_run, **fields})
    context = ParallelContext(Mesh(dp=world_size), rank, torch.device("cpu"))
    return build_engine(config, context), make_scaler(config.training), Checkpointing(config, context)


def train_and_save(rank, world_size, precision, directory, fields=()):
    engine, scaler, checkpointing = run_of(precision, rank, world_size, save=str(directory), **dict(fields))
    train_steps(engine, STEPS)
    checkpointing.save(engine, scaler, Progress(STEPS, 4 * STEPS, 4 * STEPS, STEPS), last=True)
    checkpointing.close()


def load_and_save(rank, world_size, precision, source, directory, fields):
    """Restore and save at once: what the second checkpoint holds is what the run has in memory."""
    engine, scaler, checkpointing = run_of(precision, rank, world_size, load=str(source), save=str(directory), **fields)
    progress = checkpointing.restore(engine, scaler)
    check_replicas(engine)
    checkpointing.save(engine, scaler, progress, last=True)
    checkpointing.close()


def tensors(directory):
    (path,) = directory.glob("iter_*")
    store = open_store(path)
    return {name: store.read(name) for name in store.names()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of three steps in each precision."""
    directories = {precision: tmp_path_factory.mktemp(precision) for precision in PRECISIONS}
    for precision, directory in directories.items():
        run_world(train_and_save, 2, precision, directory)
    return directories


CASES = [
    *((before, now, {}) for before in PRECISIONS for now in PRECISIONS),
    *(("bfloat16", now, {"no_load_optim": True}) for now in ("float32", "bfloat16")),
    *((before, "bfloat16", {"finetune": True}) for before in ("float32", "bfloat16")),
]


@pytest.mark.parametrize("before, now, fields", CASES, ids=str)
def test_the_most_exact_values_there_are_go_on(saved, tmp_path, before, now, fields):
    run_world(load_and_save, 2, now, saved[before], tmp_path / "again", fields)
    old, new = tensors(saved[before]), tensors(tmp_path / "again")
    names = [name for name in old if not name.startswith("optim.")]
    assert set(names) == {name for name in new if not name.startswith("optim.")}
    rounded = 0
    for name in names:
        exact = old.get(f"optim.param.{name}", old[name])
        assert exact.dtype == torch.float32
        if now == "float32":
            assert torch.equal(new[name], exact) and f"optim.param.{name}" not in new
        else:
            assert torch.equal(new[f"optim.param.{name}"], exact), name
            assert torch.equal(new[name], exact.to(getattr(torch, now))), name
        rounded += not torch.equal(exact.to(torch.bfloat16).float(), exact)
    assert rounded > 10, "values that bfloat16 holds prove nothing"
    state = [name for name in old if is_optimizer_state(name)]
    assert state and {name for name in new if is_optimizer_state(name)} == set(state)
    for name in state:
        assert torch.equal(new[name], torch.zeros_like(old[name]) if fields else old[name]), name


def test_parameters_saved_alone_become_the_main_ones(tmp_path):
    run_world(train_and_save, 1, "bfloat16", tmp_path / "alone", {"no_save_optim": True})
    old = tensors(tmp_path / "alone")
    assert not [name for name in old if name.startswith("optim.")]
    run_world(load_and_save, 1, "bfloat16", tmp_path / "alone", tmp_path / "again", {"no_load_optim": True})
    new = tensors(tmp_path / "again")
    for name, tensor in old.items():
        assert torch.equal(new[name], tensor) and torch.equal(new[f"optim.param.{name}"], tensor.float())

    def resume(rank, world_size):
        with pytest.raises(
            CheckpointError, match="must hold optimizer state .* given it up under --keep-weights-of-older"
        ):
            load_and_save(rank, world_size, "bfloat16", tmp_path / "alone", tmp_path / "not", {})

    run_world(resume, 2)


def test_a_parameter_in_neither_form_is_missing_by_its_name(saved, tmp_path):
    def resume(rank, world_size):
        with pytest.raises(CheckpointError) as caught:
            deeper = {"num_layers": 3, "override_opt_param_scheduler": True}
            load_and_save(rank, world_size, "bfloat16", saved["float32"], tmp_path / "not", deeper)
        return str(caught.value)

    for text in run_world(resume, 2):
        assert "layers.2.mlp.up.weight" in text and "optim.exp_avg.layers.2.mlp.up.weight" in text
        assert "surplus" not in text and "optim.param." not in text
