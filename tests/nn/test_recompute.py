import pytest
import torch

from megalite.models import gpt
from megalite.nn.recompute import RecomputePlan
from tests.harness import run_world
from tests.models.cases import build, forward, gpt2, llama, make_batch, randomize
from tests.nn.world import every_case, layer_context

PLANS = [
    RecomputePlan(),
    RecomputePlan("selective"),
    RecomputePlan("full", "uniform", 1),
    RecomputePlan("full", "uniform", 2),
    RecomputePlan("full", "uniform", 5),
    RecomputePlan("full", "block", 1),
    RecomputePlan("full", "block", 2),
]


def names(plan, num_layers=5):
    return [unit.name for unit in plan.apply(gpt.units(gpt2(num_layers=num_layers))[1:])]


def test_units_of_a_stage():
    plain = ["layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "head"]
    for plan in (RecomputePlan(), RecomputePlan("selective"), RecomputePlan("full"), RecomputePlan("full", "block", 2)):
        assert names(plan) == plain
    assert names(RecomputePlan("full", "uniform", 2)) == ["layers.0-1", "layers.2-3", "layers.4", "head"]
    assert names(RecomputePlan("full", "uniform", 9)) == ["layers.0-4", "head"]
    merged = RecomputePlan("full", "uniform", 2).apply(gpt.units(gpt2(hidden_dropout=0.1)))
    assert [unit.kind for unit in merged] == ["embedding", "layer", "head"]
    assert merged[1].cost == 2 * gpt.units(gpt2())[1].cost and "sample_ids" in merged[1].batch_fields


def run(rank, world_size, sequence_parallel, model, plan):
    """Loss, gradients, how often each gradient was reported, and the bytes kept for the backward pass."""
    modules, held = build(model, layer_context(rank, world_size, sequence_parallel), plan)
    randomize(held)
    reports = {name: 0 for name in held}

    def report(param):
        reports[param.spec.name] += 1

    for param in held.values():
        param.main_grad, param.grad_hook = torch.zeros_like(param), report
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward(modules, make_batch(model, documents=True))["loss_sum"]
    num_bytes = sum(kept.values())
    loss.backward()
    return loss.detach(), {name: param.main_grad for name, param in held.items()}, reports, num_bytes


@pytest.mark.parametrize("tp", [1, 2])
def test_numbers_and_reports_are_the_same_and_less_is_kept(tp):
    dropped = dict(hidden_dropout=0.1, attention_dropout=0.1, num_layers=3)
    models = [gpt2(**dropped), llama(**dropped), llama(num_layers=3)]
    for results in run_world(every_case, tp, run, [False, True], models, PLANS):
        for at in range(0, len(results), len(PLANS)):
            (loss, grads, reports, num_bytes), *recomputed = results[at : at + len(PLANS)]
            assert set(reports.values()) <= {1, 2} and [n for n in reports if reports[n] == 2] in (
                [],
                ["embedding.word.weight"],
            )
            for plan, (own_loss, own_grads, own_reports, own_bytes) in zip(PLANS[1:], recomputed):
                assert torch.equal(own_loss, loss) and own_reports == reports, plan
                for name in grads:
                    assert torch.equal(own_grads[name], grads[name]), (plan, name)
                assert own_bytes < num_bytes, (plan, own_bytes, num_bytes)


def test_evaluation_runs_plainly():
    model = gpt2()
    modules, _ = build(model, layer_context(0, 1), RecomputePlan("full"))
    with torch.no_grad():
        assert not forward(modules, make_batch(model))["loss_sum"].requires_grad
