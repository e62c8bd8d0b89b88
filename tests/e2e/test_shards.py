"""Optimizer shards of odd contents, and what checkpoints hold of them: saved, resumed, equal on all ranks."""

import pytest
import torch

from megalite.checkpoint.store import open_store
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.pipeline.stage import parameters_of
from megalite.train.checkpointing import Checkpointing
from megalite.train.configure import configure
from megalite.train.engine import build_engine
from megalite.train.plan import plan_run
from tests.e2e.launch import curve, flags, python, run, trained
from tests.harness import run_world

STEPS, HALF = 6, 3
TINY_LAYERS = {
    "num_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "ffn_hidden_size": 8,
    "untie_embeddings_and_output_weights": True, "bf16": True,
}
"""In memory, 1 024 elements of the output matrix, 640 of the layer and the positions, 1 024 of the embedding: at 4
ranks, the first slice lies inside the one and the last inside the other."""
SHARDED = {"use_distributed_optimizer": True, "check_replicas": True}
BUCKETS = {"slices inside one parameter": None, "a bucket a parameter, most slices empty": 1}


def options(corpus, directory, **fields):
    files = {"save": directory / "checkpoints", "save_interval": HALF, "metrics_file": directory / "metrics.jsonl"}
    numbers = {"train_iters": STEPS, "global_batch_size": 12, **TINY_LAYERS}
    return flags(data_path=corpus, **{**numbers, **files, **fields})


def tensors(directory, iteration):
    store = open_store(directory / "checkpoints" / f"iter_{iteration:07d}")
    return {name: store.read(name) for name in store.names()}


@pytest.mark.parametrize("bucket_size", BUCKETS.values(), ids=BUCKETS)
def test_slices_of_one_parameter_or_none_resume(corpus, tmp_path, bucket_size):
    straight, again, other = (tmp_path / name for name in ("straight", "again", "other"))
    shards = {**SHARDED, "ddp_bucket_size": bucket_size, "micro_batch_size": 1}
    trained(4, options(corpus, straight, **shards))
    load = {"load": straight / "checkpoints", "ckpt_step": HALF}
    trained(4, options(corpus, again, **load, **shards))
    trained(3, options(corpus, other, **load, **shards))
    expected = curve(straight / "metrics.jsonl")
    assert curve(again / "metrics.jsonl") == {step: expected[step] for step in range(HALF + 1, STEPS + 1)}
    ended, resumed = tensors(straight, STEPS), tensors(again, STEPS)
    assert ended.keys() == resumed.keys() and all(torch.equal(ended[name], resumed[name]) for name in ended)
    for step, values in curve(other / "metrics.jsonl").items():
        assert values == pytest.approx(expected[step], rel=1e-2)


def load(rank, world_size, argv):
    """What a rank holds after loading: its parameters, and its part of the main ones and of the state."""
    plan = plan_run(configure(argv), world_size)
    engine = build_engine(plan.config, ParallelContext(plan.mesh, rank, torch.device("cpu")), plan.schedules)
    for parameter in parameters_of(engine.stages):
        parameter.data.fill_(torch.nan)
    checkpointing = Checkpointing(plan.config, engine.context)
    checkpointing.restore(engine, make_scaler(plan.config.training))
    checkpointing.close()
    engine.strategy.wait_params()
    parameters = {parameter.spec.name: parameter.detach() for parameter in parameters_of(engine.stages)}
    entries = [(e.slot, e.spec.name, e.start, e.tensor) for e in engine.optimizer.state_entries()]
    return parameters, entries


def test_all_ranks_hold_what_the_file_holds_after_loading(corpus, tmp_path):
    trained(1, options(corpus, tmp_path, train_iters=HALF))
    stored = tensors(tmp_path, HALF)
    argv = options(corpus, tmp_path, load=tmp_path / "checkpoints", **SHARDED)
    for parameters, entries in run_world(load, 3, argv):
        for name, values in parameters.items():
            rows = stored[name].shape[0]
            assert values.dtype == torch.bfloat16 and torch.equal(values[:rows], stored[name]), name
        for slot, name, start, values in entries:
            assert torch.equal(values, stored[f"optim.{slot}.{name}"].flatten()[start : start + values.numel()]), name


def test_what_is_saved_does_not_depend_on_what_memory_held_before(corpus, tmp_path):
    """glibc fills memory that it hands out with another byte in each run; the vocabulary of 100 is padded to 128."""
    written = []
    for byte in ("1", "170"):
        directory = tmp_path / byte
        argv = options(corpus, directory, train_iters=HALF, **SHARDED)
        done = run(python(argv), MALLOC_PERTURB_=byte)
        assert done.status == 0, done.err
        checkpoint = directory / "checkpoints" / f"iter_{HALF:07d}"
        written.append({path.name: path.read_bytes() for path in checkpoint.glob("*.safetensors")})
    assert written[0] == written[1] and written[0]
