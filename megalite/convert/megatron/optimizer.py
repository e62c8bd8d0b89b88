"""State of optimizers in the files of Megatron-LM, where tensors have numbers instead of names.

The numbers count the parameters of each group, with and without weight decay, in the order of the model's tensors.
"""

from dataclasses import replace
from typing import Any, Callable, Sequence

import torch

from megalite.config import Config, OptimizerConfig
from megalite.convert.megatron.distributed import DISTRIBUTED, MAIN, Buckets, Shapes, read_distributed_state
from megalite.convert.megatron.files import RankFile, read_file
from megalite.convert.megatron.layout import RankKey
from megalite.errors import CheckpointError
from megalite.optim.decay import WeightDecay
from megalite.optim.lr import LearningRate

SLOTS_OF = {"adam": {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}, "sgd": {"momentum": "momentum_buffer"}}
"""The update rules that Megatron-LM has in the same form: our slots, and its names for them."""
_SLOTS = {ours: theirs for slots in SLOTS_OF.values() for ours, theirs in slots.items()}


def decays(key: RankKey, shape: tuple[int, ...]) -> bool:
    """Whether Megatron-LM applies weight decay to a parameter."""
    return len(shape) > 1 and not key.name.endswith(".bias")


def read_state(file: RankFile, shapes: Shapes, stages: int) -> tuple[dict[RankKey, torch.Tensor], int]:
    """The optimizer state of a rank by parameter and slot, and the number of updates.

    ``shapes``: the parameters of the rank, in order; ``stages``: pipeline-parallel size. Raises
    :class:`CheckpointError` if the state does not fit them.
    """
    distributed = file.path.with_name(DISTRIBUTED)
    if not distributed.is_file():
        return _read_plain_state(file.content, shapes, str(file.path))
    inner = file.content["optimizer"]["optimizer"]
    buckets = Buckets.of(vars(file.content["args"]), file.pp, stages)
    return read_distributed_state(read_file(distributed), shapes, buckets, str(distributed)), num_updates(inner)


def _read_plain_state(content: dict[str, Any], shapes: Shapes, where: str) -> tuple[dict[RankKey, torch.Tensor], int]:
    """The state in a rank's main file."""
    outer = content["optimizer"]
    inner = outer.get("optimizer", outer) if isinstance(outer, dict) else None
    if not isinstance(inner, dict) or "param_groups" not in inner or "state" not in inner:
        raise CheckpointError(
            f"{where} must hold the state of one optimizer, beside {DISTRIBUTED} if it is distributed: it has another "
            "form. Add --drop-optimizer to take the parameters alone."
        )
    main = outer.get("fp32_from_fp16_params")
    found: dict[RankKey, torch.Tensor] = {}
    groups = _groups(inner["param_groups"], shapes, where)
    for index, (group, keys) in enumerate(zip(inner["param_groups"], groups)):
        for at, (number, key) in enumerate(zip(group["params"], keys)):
            state = inner["state"].get(number, {})
            tensors = {ours: state[theirs] for ours, theirs in _SLOTS.items() if theirs in state}
            if main is not None:
                tensors[MAIN] = main[index][at]
            for slot, tensor in tensors.items():
                _check_shape(tensor, shapes[key], f"{where}: {slot} of {key.name}")
                found[replace(key, slot=slot)] = tensor
    return found, num_updates(inner)


def _groups(groups: Sequence[dict[str, Any]], shapes: Shapes, where: str) -> list[list[RankKey]]:
    """The parameters of each group, in the order of their numbers."""
    by_decay = {flag: [key for key, shape in shapes.items() if decays(key, shape) == flag] for flag in (True, False)}
    named = [by_decay[group.get("wd_mult", 1.0) != 0.0] for group in groups]
    counts = [len(group["params"]) for group in groups]
    if [len(keys) for keys in named] != counts or sum(counts) != len(shapes):
        raise CheckpointError(
            f"{where}: the optimizer must have one group with weight decay, of {len(by_decay[True])} parameters, and "
            f"one without, of {len(by_decay[False])}; its groups have {counts}. Add --drop-optimizer to take the "
            "parameters alone."
        )
    return named


def num_updates(optimizer: dict[str, Any]) -> int:
    """How many updates an optimizer has made, from its own file or from that which is common to all ranks."""
    inner = optimizer.get("optimizer", optimizer)
    state = inner.get("state", {})
    steps = [group["step"] for group in inner.get("param_groups", ()) if "step" in group]
    steps += [entry["step"] for entry in state.values() if isinstance(entry, dict) and "step" in entry]
    steps += [state["common_step"]] if "common_step" in state else []
    return int(steps[0]) if steps else 0


def _check_shape(tensor: Any, shape: tuple[int, ...], what: str) -> None:
    found = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
    if found != shape:
        raise CheckpointError(f"{what} must have shape {shape}; it has {found}.")


def write_state(
    shapes: Shapes,
    slots: Sequence[str],
    make: Callable[[RankKey], torch.Tensor],
    num_updates: int,
    rates: dict[str, Any],
) -> dict[str, Any]:
    """The state of a rank's optimizer, as Megatron-LM's for one data-parallel rank has it.

    ``make`` gives a slot of a parameter; ``rates`` are entries that every group gets.
    """
    groups, state, main = [], {}, []
    for flag in (True, False):
        keys = [key for key, shape in shapes.items() if decays(key, shape) == flag]
        numbers = list(range(len(state), len(state) + len(keys)))
        groups.append(
            {
                **rates,
                "wd_mult": float(flag),
                "lr_mult": 1.0,
                "is_expert_parallel": False,
                "is_decoupled_lr": False,
                "step": num_updates,
                "params": numbers,
            }
        )
        for number, key in zip(numbers, keys):
            state[number] = {_SLOTS[slot]: make(replace(key, slot=slot)) for slot in slots if slot != MAIN}
        main.append([make(replace(key, slot=MAIN)) for key in keys] if MAIN in slots else [])
    inner = {"state": state, "param_groups": groups}
    return {"optimizer": inner, "fp32_from_fp16_params": main} if MAIN in slots else inner


def without_tensors(state: dict[str, Any]) -> dict[str, Any]:
    """What stays of :func:`write_state` where the distributed optimizer keeps the tensors in its own file."""
    inner = state.get("optimizer", state)
    return {"optimizer": {"param_groups": [_without(group, "params") for group in inner["param_groups"]]}}


def _without(group: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != name}


def group_rates(optimizer: OptimizerConfig) -> dict[str, Any]:
    """What Megatron-LM keeps in every group of parameters besides."""
    lr = optimizer.lr or 0.0
    common = {"lr": lr, "max_lr": lr, "min_lr": optimizer.min_lr, "weight_decay": optimizer.weight_decay}
    if optimizer.optimizer == "sgd":
        return {**common, "momentum": optimizer.sgd_momentum, "dampening": 0.0, "nesterov": False}
    betas = (optimizer.adam_beta1, optimizer.adam_beta2)
    return {**common, "betas": betas, "eps": optimizer.adam_eps, "bias_correction": True}


def scheduler_state(config: Config, consumed_samples: int) -> dict[str, Any] | None:
    """Megatron-LM's state of the learning rate's curve, lengths in samples; None where the curve is not known."""
    optimizer, training = config.optimizer, config.training
    if (
        optimizer.lr is None
        or training.global_batch_size is None
        or not (training.train_iters or training.train_samples)
    ):
        return None
    rate, decay = LearningRate.from_config(optimizer, training), WeightDecay.from_config(optimizer, training)
    return {
        "max_lr": rate.max_lr,
        "min_lr": rate.min_lr,
        "lr_warmup_steps": rate.warmup_samples,
        "lr_decay_steps": rate.decay_samples,
        "lr_decay_style": rate.decay_style,
        "start_wd": decay.start,
        "end_wd": decay.end,
        "wd_incr_style": decay.style,
        "wd_incr_steps": decay.length,
        "num_steps": consumed_samples,
    }
