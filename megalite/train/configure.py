"""The configuration of a run: its command line, and what that asks to be taken from a checkpoint."""

import dataclasses
from pathlib import Path
from typing import Any, Mapping, Sequence

from megalite.checkpoint.locate import find_checkpoint, is_fresh
from megalite.checkpoint.store import CONFIG, Store
from megalite.config import Config
from megalite.config.cli import given_fields, parse
from megalite.config.dump import differences
from megalite.config.report import one_error
from megalite.convert.export import foreign_weights
from megalite.convert.source import Source
from megalite.log import logger

_CURVES = ("lr", "min_lr", "weight_decay", "start_weight_decay", "end_weight_decay")


def stored_config(store: Store) -> Config:
    """The configuration of the run that wrote a checkpoint."""
    return parse(["--config", str(store.directory / CONFIG)])


def configure(argv: Sequence[str]) -> Config:
    """The configuration that ``argv`` asks for.

    ``--load`` of a Hugging Face directory: the model is its model. ``--use-checkpoint-args``: it is the checkpoint's.
    Fields that are given win over either. The curves that ``--use-checkpoint-opt_param-scheduler`` takes from the
    checkpoint win over those that are given, as in Megatron-LM.
    """
    given = given_fields(argv)
    weights = foreign_weights(given.get("load"), given.get("ckpt_step"))
    if weights is not None:
        return _configure_for(weights, argv, given)
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


def _configure_for(weights: Source, argv: Sequence[str], given: Mapping[str, Any]) -> Config:
    """The configuration of a run that begins with the weights of another program: the model is theirs, except for the
    fields that are given."""
    if given.get("use_checkpoint_opt_param_scheduler"):
        raise one_error(
            [
                "use_checkpoint_opt_param_scheduler needs a checkpoint with curves; "
                f"{weights.directory} has none: give --lr instead."
            ]
        )
    fields = dataclasses.asdict(weights.config.model)
    del fields["seq_length"]  # The longest that the model can read: a choice of this run.
    if given.get("tokenizer_type") == "NullTokenizer":
        fields["vocab_size"] -= 1  # It adds its end-of-document token.
    config = parse(argv, overrides=fields)
    for line in differences(weights.config, weights.config.replace(**dataclasses.asdict(config.model))):
        logger.info(f"unlike in {weights.directory}, {line}")
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
    """The fields that shape the curves of learning rate and weight decay, the length of the decay included."""
    fields = {name: value for name, value in dataclasses.asdict(stored.optimizer).items() if name.startswith(_CURVES)}
    unit = "iters" if stored.training.train_iters is not None else "samples"
    fields[f"lr_decay_{unit}"] = fields[f"lr_decay_{unit}"] or getattr(stored.training, f"train_{unit}")
    return fields
