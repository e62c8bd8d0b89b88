"""Engine: what computes a step on this rank, made of a configuration; the same for one rank and for many."""

from dataclasses import dataclass, field, fields

import torch

from megalite import plugins
from megalite.config import Config, TrainingConfig
from megalite.dp.strategy import DataParallel
from megalite.nn.context import Fusions, LayerContext
from megalite.nn.recompute import RecomputePlan
from megalite.optim.optimizer import Optimizer
from megalite.parallel.context import ParallelContext
from megalite.parallel.group import Group
from megalite.parallel.p2p import PairTransport
from megalite.pipeline.executor import Executor
from megalite.pipeline.partition import partition, tied_stages
from megalite.pipeline.stage import Stage, build_stages, parameters_of
from megalite.schedule.actions import Schedule
from megalite.schedule.plan import plan
from megalite.topology.placement import owner, stages_of
from megalite.train.timers import Timers


@dataclass
class Schedules:
    """The planned and verified schedules of a run, each made when first asked for."""

    config: Config
    _planned: dict[tuple[str, int], Schedule] = field(default_factory=dict)

    def training(self, num_microbatches: int) -> Schedule:
        """Forward and backward passes of one step."""
        parallel = self.config.parallel
        group = parallel.microbatch_group_size_per_virtual_pipeline_stage
        return self._get(parallel.pipeline_schedule, num_microbatches, microbatch_group_size=group)

    def evaluation(self, num_microbatches: int) -> Schedule:
        """Forward passes alone."""
        return self._get("forward_only", num_microbatches)

    def _get(self, name: str, num_microbatches: int, **options: int | None) -> Schedule:
        key = (name, num_microbatches)
        if key not in self._planned:
            pp, virtual = self.config.parallel.pipeline_model_parallel_size, self.config.virtual_stages
            self._planned[key] = plan(name, pp, virtual, num_microbatches, **options)
        return self._planned[key]


@dataclass(frozen=True)
class Engine:
    """What this rank computes with."""

    config: Config
    context: ParallelContext
    stages: dict[int, Stage]
    strategy: DataParallel
    optimizer: Optimizer
    executor: Executor
    schedules: Schedules
    timers: Timers = field(default_factory=Timers)

    @property
    def owns_loss(self) -> bool:
        """Whether this rank is the one of its model replica that reports the loss."""
        coords, last = self.context.coords, owner(self._num_stages - 1, self.context.mesh.pp)
        return coords.tp == 0 and coords.pp == last

    @property
    def batch_fields(self) -> frozenset[str]:
        """Fields of the data that this rank's stages read."""
        return frozenset().union(*(stage.batch_fields for stage in self.stages.values()))

    @property
    def _num_stages(self) -> int:
        return self.context.mesh.pp * self.config.virtual_stages

    def train_mode(self, training: bool) -> None:
        """Switch dropout on or off."""
        for stage in self.stages.values():
            stage.train(training)


def build_engine(config: Config, context: ParallelContext, schedules: Schedules | None = None) -> Engine:
    """Build the owned stages, their buckets, the optimizer and the executor. ``config`` must be resolved and checked;
    ``schedules`` may hold some that are planned already."""
    model = plugins.load("megalite.models", config.model.model, "--model")
    recompute = _recompute_plan(config.training)
    cut = partition(model.units(config.model, recompute), config)
    mesh, parallel = context.mesh, config.parallel
    dtype = getattr(torch, config.training.dtype)
    layer_context = LayerContext(
        tp=context.group("tp"),
        sequence_parallel=parallel.sequence_parallel and mesh.tp > 1,
        dtype=dtype,
        device=context.device,
        seed=config.training.seed,
        fusions=Fusions(**{each.name: getattr(config.training, f"{each.name}_fusion") for each in fields(Fusions)}),
    )
    stages = build_stages(
        [recompute.apply(units) for units in cut],
        stages_of(context.coords.pp, mesh.pp, config.virtual_stages),
        layer_context,
    )
    strategy = _build_strategy(config, context, stages, tied_stages(cut))
    rule = plugins.load("megalite.optim.rules", config.optimizer.optimizer, "--optimizer").Rule
    optimizer = Optimizer(rule.from_config(config.optimizer), strategy.slices(), context.group("tp", "dp"))
    transport = PairTransport(context, wrap=config.virtual_stages > 1) if mesh.pp > 1 else None
    carry = model.carry_spec(
        config.model, config.training.micro_batch_size, mesh.tp, layer_context.sequence_parallel, dtype
    )
    executor = Executor(stages, context.coords.pp, transport, carry)
    timers = Timers(torch.cuda.synchronize if config.logging.times_steps and context.device.type == "cuda" else None)
    return Engine(config, context, stages, strategy, optimizer, executor, schedules or Schedules(config), timers)


def _recompute_plan(training: TrainingConfig) -> RecomputePlan:
    return RecomputePlan(
        training.recompute_granularity, training.recompute_method or "uniform", training.recompute_num_layers or 1
    )


def _build_strategy(
    config: Config, context: ParallelContext, stages: dict[int, Stage], ties: dict[str, tuple[int, int]]
) -> DataParallel:
    name = "zero1" if config.parallel.use_distributed_optimizer else "replicated"
    groups: dict[str, Group] = {}
    uses: dict[str, int] = {}
    chain = context.group("pp").ranks
    for parameter, (first, second) in sorted(ties.items()):
        holders = {chain[owner(stage, context.mesh.pp)] for stage in (first, second)}
        if len(holders) == 1:
            uses[parameter] = 2
            continue
        group = context.subgroup("tie", tuple(holders) if context.rank in holders else None)
        if group is not None:
            groups[parameter] = group
    kind = plugins.load("megalite.dp.strategies", name, "--use-distributed-optimizer").Strategy
    reduce_dtype = torch.bfloat16 if config.training.grad_reduce_in_bf16 else None
    strategy = kind(parameters_of(stages), context, config.parallel, groups, uses, reduce_dtype)
    for stage in stages.values():
        stage.before_unit = lambda module: strategy.wait_params(module.parameters())
    return strategy
