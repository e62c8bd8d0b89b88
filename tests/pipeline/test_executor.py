"""The executor over an in-process mailbox: every schedule gives the gradients of one process."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from megalite.nn.context import LayerContext
from megalite.nn.linear import ColumnParallelLinear, LinearOptions
from megalite.nn.unit import Unit
from megalite.parallel.p2p import TensorSpec
from megalite.pipeline.executor import Executor
from megalite.pipeline.stage import build_stages, parameters_of
from megalite.schedule.actions import Action, Kind, Schedule
from megalite.schedule.lower import lower
from megalite.schedule.plan import plan
from megalite.schedule.verify import verify
from megalite.topology.placement import stages_of
from tests.harness.mailbox import Mailbox, Post, run_ranks

WIDTH, BATCH = 4, 2
SPEC = {
    "hidden": TensorSpec((1, BATCH, WIDTH), torch.float64),
    "memory": TensorSpec((1, BATCH, WIDTH), torch.float64),
    "ids": TensorSpec((BATCH,), torch.int64),
}


class Layer(nn.Module):
    """A linear layer that also reads a second tensor and an integer one, which pass through to all later stages."""

    def __init__(self, index: int, first: bool, last: bool, ctx: LayerContext):
        super().__init__()
        self.first, self.last = first, last
        self.linear = ColumnParallelLinear(f"layers.{index}", WIDTH, WIDTH, ctx, LinearOptions(std=0.5))

    def forward(self, carry, batch):
        if self.first:
            carry = {"hidden": batch["x"], "memory": batch["x"] * 2, "ids": batch["ids"]}
            carry["memory"].requires_grad_()
        hidden = torch.tanh(self.linear(carry["hidden"]) + carry["memory"]) + carry["ids"].view(1, -1, 1)
        if self.last:
            return {"loss_sum": (hidden * batch["y"]).sum(), "num_tokens": torch.tensor(BATCH)}
        return {**carry, "hidden": hidden}


def _units(num_stages):
    return [
        [
            Unit(
                f"layers.{i}",
                "layer",
                lambda ctx, held, i=i: Layer(i, i == 0, i == num_stages - 1, ctx),
                1.0,
                frozenset({"x"}),
            )
        ]
        for i in range(num_stages)
    ]


def _batches(count):
    generator = torch.Generator().manual_seed(3)
    random = lambda: torch.randn(1, BATCH, WIDTH, generator=generator, dtype=torch.float64)
    return [{"x": random(), "y": random(), "ids": torch.tensor([m, 0])} for m in range(count)]


def _run(schedule: Schedule):
    """(losses by micro-batch, gradients by parameter name) of running a schedule, one thread per rank."""
    post = Post()

    def rank(index):
        ctx = LayerContext(dtype=torch.float64)
        stages = build_stages(_units(schedule.num_stages), stages_of(index, schedule.pp, schedule.virtual), ctx)
        executor = Executor(stages, index, Mailbox(post), SPEC)
        results = executor.run(schedule, _batches(schedule.num_microbatches))
        grads = {p.spec.name: p.grad for p in parameters_of(stages)}
        return [result["loss_sum"].item() for result in results], grads

    outcomes = run_ranks(rank, schedule.pp)
    losses = [losses for losses, _ in outcomes if losses]
    assert len(losses) == 1, "only the owner of the last stage reports losses"
    return losses[0], {name: grad for _, grads in outcomes for name, grad in grads.items()}


def _expected(num_stages, num_microbatches):
    """The same in a loop, with plain autograd over the whole chain."""
    ctx = LayerContext(dtype=torch.float64)
    layers = [unit.build(ctx, {}) for (unit,) in _units(num_stages)]
    losses = []
    for batch in _batches(num_microbatches):
        carry = {}
        for layer in layers:
            carry = layer(carry, batch)
        carry["loss_sum"].backward()
        losses.append(carry["loss_sum"].item())
    return losses, {p.spec.name: p.grad for layer in layers for p in layer.parameters()}


def _assert_equal(got, expected):
    assert got[0] == pytest.approx(expected[0], rel=1e-13)
    assert got[1].keys() == expected[1].keys()
    for name, grad in expected[1].items():
        torch.testing.assert_close(got[1][name], grad, rtol=1e-12, atol=1e-13, msg=name)


@pytest.mark.parametrize(
    "name, pp, virtual",
    [
        ("one_f_one_b", 1, 1),
        ("one_f_one_b", 3, 1),
        ("gpipe", 2, 2),
        ("interleaved", 1, 3),
        ("interleaved", 2, 2),
        ("interleaved", 3, 2),
    ],
)
@pytest.mark.parametrize("num_microbatches", [1, 2, 5])
def test_schedule_gives_the_gradients_of_a_plain_loop(name, pp, virtual, num_microbatches):
    schedule = plan(name, pp, virtual, num_microbatches)
    _assert_equal(_run(schedule), _expected(pp * virtual, num_microbatches))


def test_split_backward_runs_weight_gradients_where_the_schedule_says():
    """1F1B with each B cut into I and a W that waits until the end of the step."""
    whole = plan("one_f_one_b", 2, 1, 3)
    ranks = []
    for actions in whole.ranks:
        computes = [a for a in actions if a.kind in (Kind.F, Kind.B)]
        split = [replace(a, kind=Kind.I) if a.kind is Kind.B else a for a in computes]
        ranks.append(tuple(split + [Action(Kind.W, a.stage, a.microbatch) for a in computes if a.kind is Kind.B]))
    schedule = lower(replace(whole, name="split", ranks=tuple(ranks)))
    verify(schedule)
    _assert_equal(_run(schedule), _expected(2, 3))


def test_forward_only_keeps_nothing_and_gives_the_losses():
    schedule = plan("forward_only", 2, 2, 3)
    losses, grads = _run(schedule)
    assert losses == pytest.approx(_expected(4, 3)[0], rel=1e-13)
    assert all(grad is None for grad in grads.values())


def test_a_schedule_that_leaves_work_behind_is_noticed():
    whole = plan("one_f_one_b", 1, 1, 2)
    without_last_backward = replace(whole, ranks=(whole.ranks[0][:-1],))
    with pytest.raises(AssertionError, match="left work behind"):
        _run(without_last_backward)

