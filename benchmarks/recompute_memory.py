"""Activation memory of a stack of transformer layers under every kind of recomputation, beside the formulas of
Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.

Nothing is timed: the bytes of all tensors are counted exactly, in bfloat16 with dropout, as the paper assumes.

    python -m benchmarks.recompute_memory
"""

import argparse
import dataclasses
import functools
import time
from typing import Callable, Sequence

import torch
from torch.autograd.graph import get_gradient_edge

from benchmarks.live_memory import LiveMemory
from benchmarks.paired import race
from megalite.config import ModelConfig
from megalite.log import echo, run_main
from megalite.models import gpt
from megalite.nn.context import LayerContext
from megalite.nn.recompute import RecomputePlan
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh

MODEL = ModelConfig(num_layers=6, hidden_size=256, num_attention_heads=8, seq_length=512, vocab_size=128)
"""5 a s / h is 80, as in GPT-3."""
MICRO_BATCH = 1


@dataclasses.dataclass(frozen=True)
class Layout:
    """Tensor-parallel size, and whether the sequence is split too."""

    tp: int
    sequence_parallel: bool

    def __str__(self) -> str:
        return f"tp {self.tp}" + (", sequence parallel" if self.sequence_parallel else "")


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to save memory, and the name it has in the table."""

    name: str
    plan: RecomputePlan = RecomputePlan()
    fused: bool = False
    """The fused attention core, which never keeps the scores (and drops none)."""

    def model(self, model: ModelConfig) -> ModelConfig:
        """The model with the attention core of this case."""
        core = (
            {"attention_backend": "fused", "attention_dropout": 0.0} if self.fused else {"attention_backend": "unfused"}
        )
        return ModelConfig(**{**vars(model), **core})


LAYOUTS = (Layout(1, False), Layout(2, False), Layout(2, True))
CASES = (
    Case("none"),
    Case("none, fused attention", fused=True),
    Case("selective", RecomputePlan("selective")),
    Case("full, uniform 1", RecomputePlan("full", "uniform", 1)),
    Case("full, uniform 4", RecomputePlan("full", "uniform", 4)),
    Case("full, block 2", RecomputePlan("full", "block", 2)),
)


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of activations between forward and backward pass, and the most that ever existed at a time."""

    kept: int
    peak: int


def formula(model: ModelConfig, layout: Layout, case: Case, ours: bool = False) -> float:
    """Bytes kept by a layer on average, over s b h: Table 2 of the paper, with the sharded input where it is sharded.

    Attention without its scores keeps what selective recomputation keeps. ``ours``: less the outputs of the two norms
    (4), that of the activation (8) and all dropout masks (2, and a fifth of the scores' term), which are always
    computed again.
    """
    tp, scores = layout.tp, 5 * model.num_attention_heads * model.seq_length / model.hidden_size
    if case.fused or case.plan.granularity == "selective":
        scores = 0.0
    whole, split = 10, 24 + scores
    if ours:
        whole, split = whole - 6, split - 8 - scores / 5
    layer = (whole + split) / tp if layout.sequence_parallel else whole + split / tp
    if case.plan.granularity != "full":
        return layer
    inputs, size = 2 / tp if layout.sequence_parallel else 2, case.plan.num_layers
    if case.plan.method == "uniform":
        return inputs * -(-model.num_layers // size) / model.num_layers
    return (inputs * size + layer * (model.num_layers - size)) / model.num_layers


def count(model: ModelConfig, ctx: LayerContext, case: Case) -> Memory:
    """One micro-batch forward and backward through all layers of the model."""
    model = case.model(model)
    units = case.plan.apply(gpt.units(model, case.plan)[1:-1])
    modules = [unit.build(ctx, {}) for unit in units]
    for parameter in (parameter for module in modules for parameter in module.parameters()):
        parameter.main_grad = torch.zeros_like(parameter)
    batch = {"sample_ids": torch.arange(MICRO_BATCH)}
    (carry,) = gpt.carry_spec(model, MICRO_BATCH, ctx.tp.size, ctx.sequence_parallel, ctx.dtype).values()
    with LiveMemory() as memory:
        hidden = torch.randn(carry.shape, dtype=carry.dtype).requires_grad_()
        tensors = {"hidden": hidden}
        del hidden
        for module in modules:
            tensors = module(tensors, batch)
        # As in the pipeline, what the last layer returns is sent away, and only its place in the graph is kept.
        edge, grad = get_gradient_edge(tensors["hidden"]), torch.ones(carry.shape, dtype=carry.dtype)
        num_bytes = grad.nbytes
        del tensors
        kept = (memory.now if ctx.tp.size == 1 else _settled(memory)) - num_bytes
        torch.autograd.backward([edge], [grad])
    return Memory(kept, memory.peak)


def _settled(memory: LiveMemory) -> int:
    """Gloo's threads hold the tensors of a collective a moment longer than its caller: the least of some readings."""
    readings = []
    for _ in range(20):
        time.sleep(0.01)
        readings.append(memory.now)
    return min(readings)


def counter(
    model: ModelConfig, layout: Layout, cases: Sequence[Case], rank: int, world_size: int
) -> Callable[[], list]:
    """What a process of the layout runs: all cases, one after another."""
    tp = ParallelContext(Mesh(tp=world_size), rank, torch.device("cpu")).group("tp")
    ctx = LayerContext(tp=tp, sequence_parallel=layout.sequence_parallel, dtype=torch.bfloat16)
    return lambda: [count(model, ctx, case) for case in cases]


def table(model: ModelConfig, counted: dict[Layout, list[Memory]]) -> str:
    """Rows of kept bytes per layer over s b h, by formula and as counted, and the peak of the whole stack."""
    unit = model.seq_length * MICRO_BATCH * model.hidden_size
    head = (
        "layout",
        "recomputation",
        "kept / (s b h) per layer: formula",
        "ours",
        "counted",
        "counted / formula",
        "peak, MiB",
    )
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for layout, memories in counted.items():
        for case, memory in zip(CASES, memories):
            expected, kept = formula(model, layout, case), memory.kept / (unit * model.num_layers)
            ours = formula(model, layout, case, ours=True)
            cells = (
                f"{expected:.1f}",
                f"{ours:.1f}",
                f"{kept:.1f}",
                f"{kept / expected:.2f}",
                f"{memory.peak / 2**20:.1f}",
            )
            lines.append("| " + " | ".join((str(layout), case.name, *cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=MODEL.num_layers)
    parser.add_argument("--seq-length", type=int, default=MODEL.seq_length)
    options = parser.parse_args()
    model = dataclasses.replace(MODEL, num_layers=options.layers, seq_length=options.seq_length)
    counted = {}
    for layout in LAYOUTS:
        contestant = functools.partial(counter, model, layout, CASES)
        (result,) = race({"": contestant}, rounds=1, warmup=0, threads=1, world_size=layout.tp).values()
        counted[layout] = result.last_value
    echo(table(model, counted))


if __name__ == "__main__":
    run_main(main)
