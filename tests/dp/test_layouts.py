"""Tensor-parallel shards, gradients left partial over other axes, vocabulary padding and tied copies."""

import pytest
import torch

from megalite.config import ParallelConfig
from megalite.parallel.context import ParallelContext
from megalite.state import Box
from megalite.topology.mesh import Mesh
from tests.dp import toy
from tests.dp.test_strategies import RULES, STRATEGIES, close
from tests.harness import run_world

WORD, HEAD = "embedding.word.weight", "head.weight"


def merge(pieces):
    """Whole tensors from (spec, local values) of several ranks; replicas must agree bitwise."""
    whole = {}
    for spec, local in pieces:
        inside = spec.box.inside(Box.whole(spec.global_shape))
        full = whole.setdefault(spec.name, torch.full(spec.global_shape, float("nan"), dtype=local.dtype))
        values = local[: spec.box.extent[0]]
        assert bool((torch.isnan(full[inside]) | (full[inside] == values)).all()), spec.name
        assert (local[spec.box.extent[0] :] == 0).all(), f"padding of {spec.name}"
        full[inside] = values
    return whole


def pieces_of(run):
    return [(param.spec, param.detach().clone()) for param in run.params]


def train_tensor_parallel(rank, world, mesh, rule):
    context = ParallelContext(mesh, rank, torch.device("cpu"))
    runs = []
    for name in STRATEGIES:
        config = ParallelConfig(ddp_bucket_size=100)
        run = toy.Run(name, toy.tensor_parallel_params(context), context, config, rule=rule).train()
        runs.append((pieces_of(run), run.norms))
    return runs


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mesh", [Mesh(tp=2), Mesh(tp=2, dp=2), Mesh(tp=3)])
def test_tensor_parallel_equals_one_process(mesh, rule):
    values, norms = toy.one_process(rule)
    ranks = run_world(train_tensor_parallel, mesh.world_size, mesh, rule)
    for runs in zip(*ranks):
        close(merge(piece for pieces, _ in runs for piece in pieces), values)
        for _, run_norms in runs:
            close(run_norms, norms)
            assert run_norms == runs[0][1], "the norm is the same number on every rank"


def train_tied(rank, world, dp, rule):
    """Two pipeline stages; the last one's head is a copy of the first one's word embedding."""
    context = ParallelContext(Mesh(pp=2, dp=dp), rank, torch.device("cpu"))
    tie = context.subgroup("tie", context.group("pp").ranks)
    middle = [name for name in toy.SHAPES if name not in (WORD, HEAD)]
    runs = []
    for name in STRATEGIES:
        word = toy.make_param(toy.spec_of(WORD, tie_copy=context.coords.pp == 1))
        own = [toy.make_param(toy.spec_of(name)) for name in (middle[:3], middle[3:])[context.coords.pp]]
        params = [word, *own] if context.coords.pp == 0 else [*own, word]
        run = toy.Run(name, params, context, ties={WORD: tie}, rule=rule).train()
        runs.append((pieces_of(run), run.norms))
    return runs


def one_process_without_head(monkeypatch, rule="adam"):
    monkeypatch.setattr(toy, "SHAPES", {name: shape for name, shape in toy.SHAPES.items() if name != HEAD})
    return toy.one_process(rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dp", [1, 2])
def test_tied_copies_on_two_stages_equal_one_process(dp, rule, monkeypatch):
    values, norms = one_process_without_head(monkeypatch, rule)
    ranks = run_world(train_tied, 2 * dp, dp, rule)
    for runs in zip(*ranks):
        close(merge(piece for pieces, _ in runs for piece in pieces), values)
        for _, run_norms in runs:
            close(run_norms, norms)
            assert run_norms == runs[0][1]


def test_a_parameter_tied_within_a_rank_is_used_twice_a_micro_batch(monkeypatch):
    values, norms = one_process_without_head(monkeypatch)
    for name in STRATEGIES:
        params = toy.all_params()
        params.append(params[0])  # the head comes last in the forward order and is the word embedding
        run = toy.Run(name, params, ParallelContext.single(), uses={WORD: 2}).train()
        close(run.values(), values)
        close(run.norms, norms)


def owned_state(rank, world, mesh, name, rule):
    context = ParallelContext(mesh, rank, torch.device("cpu"))
    run = toy.Run(name, toy.tensor_parallel_params(context, torch.bfloat16), context, rule=rule)
    entries = run.optimizer.state_entries(owned_only=True)
    return [(entry.slot, entry.spec, entry.start, entry.stop, entry.tensor.clone()) for entry in entries]


def expected_state(rule):
    """Shape of every slot of every parameter."""
    shapes = {("param", key): shape for key, shape in toy.SHAPES.items()}
    if rule == "adam":
        return shapes | {(slot, key): shape for key, shape in toy.SHAPES.items() for slot in ("exp_avg", "exp_avg_sq")}
    vectors = {("exp_avg_sq", key): shape for key, shape in toy.SHAPES.items() if len(shape) == 1}
    matrices = {key: shape for key, shape in toy.SHAPES.items() if len(shape) == 2}
    rows = {("row", key): shape[:1] for key, shape in matrices.items()}
    return shapes | vectors | rows | {("column", key): shape[1:] for key, shape in matrices.items()}


@pytest.mark.parametrize("rule", ["adam", "adafactor"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_owned_state_covers_each_global_element_once(name, rule):
    ranks = run_world(owned_state, 6, Mesh(tp=2, dp=3), name, rule)
    counts = {key: torch.zeros(shape, dtype=torch.int64) for key, shape in expected_state(rule).items()}
    for slot, spec, start, stop, values in (entry for rank in ranks for entry in rank):
        assert values.numel() == stop - start and values.dtype == torch.float32
        local = torch.zeros(spec.box.numel, dtype=torch.int64)
        local[start:stop] = 1
        counts[slot, spec.name][spec.box.inside(Box.whole(spec.global_shape))] += local.view(spec.box.extent)
    assert all((count == 1).all() for count in counts.values())
