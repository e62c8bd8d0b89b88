"""The configuration of a run: its command line, and what that asks to be taken from a checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any, Mapping, Sequence

from megalite.checkpoint.locate import find_checkpoint, is_fresh
from megalite.checkpoint.store import CONFIG, Store
from megalite.config import Config
from megalite.config.cli import given_fields, parse
from megalite.config.dump import differences
from megalite.log import logger

_CURVES = ("lr", "min_lr", "weight_decay", "start_weight_decay", "end_weight_decay")


def stored_config(store: Store) -> Config:
    """The configuration of the run that wrote a checkpoint."""
    return parse(["--config", str(store.directory / CONFIG)])


def configure(argv: Sequence[str]) -> Config:
    """The configuration that ``argv`` asks for.

    ``--use-checkpoint-args`` fills in the model from the checkpoint to load; fields that are given win. The curves that
    ``--use-checkpoint-opt_param-scheduler`` takes from it win over those that are given, as in Megatron-LM.
    """
    given = given_fields(argv)
    store = _source(given)
    if store is None:
        return parse(argv)
    stored = stored_config(store)
    config = parse(argv, overrides=dataclasses.asdict(stored.model) if given.get("use_checkpoint_args") else None)
    if config.optimizer.use_checkpoint_opt_param_scheduler:
        config = config.replace(**_curves(stored))
    for line in differences(stored, config):
        logger.info(f"unlike in the checkpoint, {line}")
    return config


def _source(given: Mapping[str, Any]) -> Store | None:
    """The checkpoint to take settings from; None if none is asked for, or if the job is yet to write its first."""
    load, save = given.get("load"), given.get("save")
    if load is None or not (given.get("use_checkpoint_args") or given.get("use_checkpoint_opt_param_scheduler")):
        return None
    if save is not None and Path(save).resolve() == Path(load).resolve() and is_fresh(Path(load)):
        return None
    return find_checkpoint(Path(load), given.get("ckpt_step")).store


def _curves(stored: Config) -> dict[str, Any]:
    """The fields that shape the curves of the learning rate and the weight decay, with the length of the decay in them."""
    fields = {name: value for name, value in dataclasses.asdict(stored.optimizer).items() if name.startswith(_CURVES)}
    unit = "iters" if stored.training.train_iters is not None else "samples"
    fields[f"lr_decay_{unit}"] = fields[f"lr_decay_{unit}"] or getattr(stored.training, f"train_{unit}")
    return fields
