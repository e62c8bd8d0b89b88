"""What is particular to ZeRO-1: memory, traffic, slices that hold little or nothing, late gathers."""

import pytest
import torch

from megalite.config import ParallelConfig
from megalite.dp.buckets import ALIGNMENT
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from tests.dp import toy
from tests.dp.test_strategies import close
from tests.harness import run_world

PARAM_BYTES = {torch.bfloat16: 2, torch.float32: 4, torch.float64: 8}


def new_run(rank, dp, dtype, name="zero1", **options):
    context = ParallelContext(Mesh(dp=dp), rank, torch.device("cpu"))
    config = ParallelConfig(**{"ddp_bucket_size": 200, **options})
    return toy.Run(name, toy.all_params(dtype), context, config)


def held_bytes(run):
    """Main parameters that are not the model's own, and state."""
    storages = {}
    own = {bucket.param.untyped_storage().data_ptr() for bucket in run.strategy.buckets}
    for entry in run.optimizer.state_entries():
        storage = entry.tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(size for pointer, size in storages.items() if pointer not in own)


@pytest.mark.parametrize("dtype, slots", [(torch.bfloat16, 3), (torch.float32, 2)])
def test_optimizer_memory_is_a_dp_th_of_the_replicated_one(dtype, slots):
    # no bucket of this case has a slice without parameters, so everything held is seen through the entries
    def measure(rank, dp):
        runs = [new_run(rank, dp, dtype, name, ddp_bucket_size=10**6) for name in ("replicated", "zero1")]
        return [held_bytes(run) for run in runs] + [sum(bucket.param.numel() for bucket in runs[0].strategy.buckets)]

    (replicated, sharded, elements), (replicated_1, sharded_1, _) = run_world(measure, 2)
    assert (replicated, sharded) == (replicated_1, sharded_1)
    assert replicated == elements * slots * 4 and sharded == replicated // 2
    sizes = [torch.Size(shape).numel() for shape in toy.SHAPES.values()]
    assert elements <= sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes) + 2 * ALIGNMENT * 2


@pytest.mark.parametrize("dtype", list(PARAM_BYTES))
def test_traffic_of_a_step_is_one_reduce_scatter_and_one_all_gather(dtype):
    def measure(rank, dp):
        traffic = {}
        for name in ("zero1", "replicated"):
            run = new_run(rank, dp, dtype, name)
            run.context.traffic.enabled = True
            run.step(0)
            traffic[name] = dict(run.context.traffic.bytes)
        return traffic, sum(bucket.param.numel() for bucket in run.strategy.buckets)

    grad_bytes = 8 if dtype == torch.float64 else 4
    for traffic, elements in run_world(measure, 3):
        norm = {("all_reduce", "world"): 8}
        assert traffic["zero1"] == norm | {
            ("reduce_scatter", "dp"): elements * grad_bytes,
            ("all_gather", "dp"): elements // 3 * PARAM_BYTES[dtype],
        }
        assert traffic["replicated"] == norm | {("all_reduce", "dp"): elements * grad_bytes}


def test_slices_with_one_parameter_a_part_of_one_or_none(monkeypatch):
    # 4 ranks: one matrix that spans all slices, and two vectors whose bucket leaves most slices empty
    shapes = {"embedding.word.weight": (101, 3), "final_norm.weight": (6,), "head.bias": (1,)}
    monkeypatch.setattr(toy, "SHAPES", shapes)
    values, norms = toy.one_process()

    def train(rank, dp):
        run = new_run(rank, dp, torch.float64).train()
        counts = [len(flat.segments) for flat in run.strategy.slices()]
        return run.values(), run.norms, counts

    ranks = run_world(train, 4)
    assert [counts for _, _, counts in ranks] == [[1, 1], [1, 1], [0, 1], [0, 0]]
    for run_values, run_norms, _ in ranks:
        close(run_values, values)
        close(run_norms, norms)


def test_a_single_rank_needs_no_special_case():
    values, norms = toy.one_process()
    for name in ("zero1", "replicated"):
        run = new_run(0, 1, torch.float64, name).train()
        close(run.values(), values)
        close(run.norms, norms)


def test_overlapped_gathers_start_in_forward_order_and_are_awaited_bucket_by_bucket():
    def check(rank, dp):
        run = new_run(rank, dp, torch.float64, overlap_param_gather=True)
        expected = new_run(rank, dp, torch.float64).train(1).values()
        run.step(0)
        place = {param: index for index, param in enumerate(run.params)}
        first_use = [min(place[entry.param] for entry in bucket.entries) for bucket in run.strategy.buckets]
        started = list(run.strategy._gathering)
        assert [first_use[index] for index in started] == sorted(first_use) and len(started) > 3
        for param in run.params:
            run.strategy.wait_params([param])
            assert torch.equal(param.detach(), expected[param.spec.name])
        assert not run.strategy._gathering
        return True

    assert run_world(check, 2) == [True, True]


def test_gathers_of_parameters_that_nobody_used_end_with_the_step():
    def check(rank, dp):
        run = new_run(rank, dp, torch.float64, overlap_param_gather=True)
        run.step(0)
        run.strategy.begin_step(1)
        run.strategy.finish_reduce()
        return len(run.strategy._gathering)

    assert run_world(check, 2) == [0, 0]
