"""A model without layers: parameters with specs, and a gradient for each sample that any layout can compute.

One process that adds up the gradients of all samples is the truth that strategies are compared with.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from megalite.config import ParallelConfig
from megalite.dp import clip
from megalite.nn.wgrad import accumulate
from megalite.optim.optimizer import Optimizer
from megalite.parallel.context import ParallelContext
from megalite.plugins import load
from megalite.state import Box, Init, ParamSpec
from tests.optim.plain import CONFIG, LR, PLAIN

SHAPES = {
    "embedding.word.weight": (11, 6),
    "layers.0.norm1.weight": (6,),
    "layers.0.mlp.up.weight": (24, 6),
    "layers.0.mlp.up.bias": (24,),
    "layers.0.mlp.down.weight": (6, 24),
    "layers.1.norm1.weight": (6,),
    "layers.1.mlp.up.weight": (24, 6),
    "final_norm.weight": (6,),
    "head.weight": (11, 6),
}
AT_THE_END = ParallelConfig(overlap_grad_reduce=False)
"""For tests that change gradients between the backward pass and the reduction."""
WEIGHT_DECAY, CLIP = 0.1, 1.0
SAMPLES, STEPS = 30, 4


def _random(name: str, key: int, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(name.encode()) * 1000 + key)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def spec_of(name: str, **fields) -> ParamSpec:
    shape = SHAPES[name]
    spec = ParamSpec(name, shape, Box.whole(shape), Init("normal", 1.0), decay=len(shape) > 1)
    return replace(spec, **fields)


def make_param(spec: ParamSpec, dtype: torch.dtype = torch.float64, padding_rows: int = 0) -> nn.Parameter:
    """The box of the parameter, with initial values that depend on its name alone."""
    local = _random(spec.name, 0, spec.global_shape)[spec.box.inside(Box.whole(spec.global_shape))]
    padding = local.new_zeros((padding_rows,) + local.shape[1:])
    param = nn.Parameter(torch.cat([local, padding]).to(dtype))
    param.spec = spec
    return param


def sample_grad(spec: ParamSpec, step: int, sample: int) -> torch.Tensor:
    """Gradient of one sample with respect to the box of the parameter."""
    whole = _random(spec.name, 1 + step * SAMPLES + sample, spec.global_shape)
    return whole[spec.box.inside(Box.whole(spec.global_shape))]


def add_sample(param: nn.Parameter, step: int, sample: int, scale: float = 1.0) -> None:
    """One use of the parameter in a micro-batch of one sample."""
    grad = (sample_grad(param.spec, step, sample) * scale).to(param.dtype)
    accumulate(param, lambda main: main[: grad.shape[0]].add_(grad))


@dataclass
class Run:
    """A strategy and an optimizer over ``params``, trained on this rank's share of the samples."""

    strategy_name: str
    params: list[nn.Parameter]
    context: ParallelContext
    config: ParallelConfig = field(default_factory=lambda: ParallelConfig(ddp_bucket_size=200))
    ties: dict = field(default_factory=dict)
    uses: dict = field(default_factory=dict)
    rule: str = "adam"
    reduce_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        module = load("megalite.dp.strategies", self.strategy_name, "strategy")
        options = (self.config, self.ties, self.uses, self.reduce_dtype)
        self.strategy = module.Strategy(self.params, self.context, *options)
        self.params = list(dict.fromkeys(self.params))
        rule = load("megalite.optim.rules", self.rule, "--optimizer").Rule.from_config(CONFIG)
        self.optimizer = Optimizer(rule, self.strategy.slices(), self.context.group("tp", "dp"))
        self.norms: list[float] = []

    def backward(self, step: int) -> None:
        """Micro-batches of one sample each: every rank takes every dp-th sample."""
        dp = self.context.group("dp")
        samples = range(dp.rank, SAMPLES, dp.size)
        self.strategy.begin_step(len(samples))
        for sample in samples:
            for param in reversed(self.params):
                uses = self.uses.get(param.spec.name, 1)
                for _ in range(uses):
                    add_sample(param, step, sample, self.share(param) / uses)

    def share(self, param: nn.Parameter) -> float:
        """This rank's share of a gradient that several ranks have partial sums of: unequal ones, adding up to 1."""
        groups = [self.context.group(*param.spec.reduce_axes)] if param.spec.reduce_axes else []
        groups += [self.ties[param.spec.name]] if param.spec.name in self.ties else []
        return math.prod((group.rank + 1) / sum(range(1, group.size + 1)) for group in groups)

    def step(self, step: int) -> None:
        self.strategy.wait_params(self.params)
        self.backward(step)
        self.strategy.finish_reduce()
        self.norms.append(clip.grad_norm(self.strategy.slices(), self.context, 1.0 / SAMPLES))
        factor = clip.clip_coefficient(self.norms[-1], CLIP) / SAMPLES
        self.optimizer.step(LR, WEIGHT_DECAY, factor)
        self.strategy.publish()

    def train(self, num_steps: int = STEPS) -> "Run":
        for step in range(num_steps):
            self.step(step)
        self.strategy.wait_params()
        return self

    def values(self) -> dict[str, torch.Tensor]:
        return {param.spec.name: param.detach().clone() for param in self.params}


def all_params(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    return [make_param(spec_of(name), dtype) for name in SHAPES]


def tensor_parallel_params(context: ParallelContext, dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    """Parameters cut as tensor parallelism cuts them, sequence-parallel norms included."""
    tp, params = context.group("tp"), []
    for name, shape in SHAPES.items():
        if name.endswith("norm.weight") or "norm1" in name:
            params.append(make_param(spec_of(name, reduce_axes=("tp",)), dtype))
            continue
        dim = 1 if "down" in name else 0
        local = -(-shape[dim] // tp.size)
        start = tp.rank * local
        length = max(0, min(local, shape[dim] - start))
        box = Box(tuple(start * (d == dim) for d in range(len(shape))), shape[:dim] + (length,) + shape[dim + 1 :])
        params.append(make_param(spec_of(name, box=box), dtype, local - length if dim == 0 else 0))
    return params


def one_process(rule: str = "adam", num_steps: int = STEPS) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Final values and gradient norms by the plain rule and torch's own clipping."""
    params = [make_param(spec_of(name)) for name in SHAPES]
    updates = [PLAIN[rule](param, WEIGHT_DECAY * param.spec.decay) for param in params]
    norms = []
    for step in range(num_steps):
        for param in params:
            param.grad = sum(sample_grad(param.spec, step, sample) for sample in range(SAMPLES)) / SAMPLES
        norms.append(nn.utils.clip_grad_norm_(params, CLIP).item())
        for update in updates:
            update()
    return {param.spec.name: param.detach() for param in params}, norms
