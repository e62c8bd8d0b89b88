"""The files of Megatron-LM's ranks, made of a checkpoint of ours: what is in each, and what cannot be written."""

from functools import cached_property
from typing import Any

import torch

from megalite.checkpoint.piece import STATE_PREFIX
from megalite.config import ModelConfig
from megalite.convert.megatron.arguments import arguments_from
from megalite.convert.megatron.distributed import DISTRIBUTED, MAIN, Buckets, distributed_state
from megalite.convert.megatron.files import FILE
from megalite.convert.megatron.layout import Grid, RankKey, model_layout, with_optimizer
from megalite.convert.megatron.optimizer import SLOTS_OF, group_rates, scheduler_state, without_tensors, write_state
from megalite.convert.options import WriteOptions
from megalite.convert.source import Source
from megalite.errors import ConfigError
from megalite.topology.layout import parse_layout


class RankWriter:
    """Makes the content of each rank's files. Raises :class:`ConfigError` for what Megatron-LM has no place for."""

    def __init__(self, source: Source, options: WriteOptions):
        self._source = source
        self.grid = _grid(source.config.model, options)
        self._slots = _slots(source, options)
        self._distributed = options.distributed_optimizer and bool(self._slots)
        padded = source.config.model.padded_vocab_size(self.grid.tp)
        self._table = with_optimizer(model_layout(source.config.model, self.grid, padded), self._slots)
        consumed = source.meta.get("consumed_samples", 0)
        self._arguments = arguments_from(source.config, self.grid, padded, consumed)
        vars(self._arguments).update(
            pipeline_model_parallel_layout=options.pipeline_layout,
            use_distributed_optimizer=self._distributed,
            accumulate_allreduce_grads_in_fp32=True,
            overlap_grad_reduce=False,
        )

    def keys(self, rank: tuple[int, int]) -> list[RankKey]:
        """The tensors of a rank (tensor, pipeline), optimizer state included."""
        return [key for key in self._table.foreign_shapes if (key.tp, key.pp) == rank]

    def num_bytes(self, key: RankKey) -> int:
        """Size of a tensor in its file."""
        dtype = getattr(torch, self._source.dtype(self._table.names_in(key)[0]))
        return torch.Size(self._table.foreign_shapes[key]).numel() * dtype.itemsize

    def files(self, rank: tuple[int, int]) -> dict[str, Any]:
        """Content of each file of a rank by its name."""
        keys = [key for key in self.keys(rank) if key.slot is None]
        names = ["model"] if self.grid.virtual == 1 else [f"model{chunk}" for chunk in range(self.grid.virtual)]
        iteration = self._source.meta["iteration"]
        content: dict[str, Any] = {"args": self._arguments, "checkpoint_version": 3.0, "iteration": iteration}
        content.update({name: {} for name in names})
        for key in keys:
            content[names[key.chunk]][key.name] = self._make(key)
        files = {FILE: content}
        if self._slots:
            shapes = {key: self._table.foreign_shapes[key] for key in keys}
            content.update(self._optimizer(shapes))
            if self._distributed:
                buckets = Buckets.of(vars(self._arguments), rank[1], self.grid.pp)
                files[DISTRIBUTED] = distributed_state(shapes, buckets, self._dtype, self._make)
        return files

    @cached_property
    def _dtype(self) -> torch.dtype:
        return getattr(torch, self._source.dtype("embedding.word.weight"))

    def _make(self, key: RankKey) -> torch.Tensor:
        if key.slot == MAIN and MAIN not in self._slots:  # Float32 parameters are their own main ones.
            return self._make(RankKey(key.tp, key.pp, key.chunk, key.name))
        return self._table.make_foreign(key, self._source.read)

    def _optimizer(self, shapes: dict[RankKey, tuple[int, ...]]) -> dict[str, Any]:
        """The entries of a rank's main file that continue its optimizer."""
        config, meta = self._source.config, self._source.meta
        slots = () if self._distributed else self._slots
        state = write_state(shapes, slots, self._make, meta.get("num_updates", 0), group_rates(config.optimizer))
        if self._distributed:
            state = without_tensors(state)
        if scaler := meta.get("loss_scaler"):
            tracked = {"growth_tracker": scaler["finite_steps"], "hysteresis_tracker": scaler["tolerance"]}
            state["grad_scaler"] = {"scale": torch.tensor([scaler["scale"]]), **tracked}
        schedule = scheduler_state(config, meta.get("updated_samples", 0))
        return {"optimizer": state} if schedule is None else {"optimizer": state, "opt_param_scheduler": schedule}


def _slots(source: Source, options: WriteOptions) -> tuple[str, ...]:
    """The optimizer's slots in a source, all of which must be those of a rule that Megatron-LM has alike."""
    found = {name.removeprefix(STATE_PREFIX).split(".")[0] for name in source.names() if name.startswith(STATE_PREFIX)}
    rule, own = source.config.optimizer.optimizer, found - {MAIN}
    rules = ("adam",) if options.distributed_optimizer else tuple(SLOTS_OF)
    if found and (rule not in rules or own != set(SLOTS_OF[rule])):
        raise ConfigError(
            f"{'the distributed optimizer of ' if options.distributed_optimizer else ''}Megatron-LM has the optimizer "
            f"state of {' and '.join(rules)}; this checkpoint has that of {rule} ({', '.join(sorted(own))}): add "
            "--drop-optimizer."
        )
    return tuple(sorted(found))


def _grid(model: ModelConfig, options: WriteOptions) -> Grid:
    tp, pp, virtual = options.tensor_parallel_size, options.pipeline_parallel_size, options.virtual_stages
    parts = [
        ("num_query_groups", model.query_groups, tp),
        ("num_attention_heads", model.num_attention_heads, tp),
        ("ffn_hidden_size", model.ffn_size, tp),
    ]
    if options.pipeline_layout is None:
        parts.append(("num_layers", model.num_layers, pp * virtual))
    problems = [f"{name} ({value}) must be divisible by {size}" for name, value, size in parts if value % size]
    if model.relu:
        problems.append("Megatron-LM has no flag for the activation relu")
    if problems:
        raise ConfigError(
            f"the model cannot be written for {tp} x {pp} x {virtual} (tensor x pipeline x virtual): "
            f"{'; '.join(problems)}."
        )
    if options.pipeline_layout is None:
        layers = (model.num_layers // (pp * virtual),) * (pp * virtual)
    else:
        layers = tuple(stage.count("t") for stage in parse_layout(options.pipeline_layout, model.num_layers, pp))
    return Grid(tp, pp, layers, options.transformer_impl)
