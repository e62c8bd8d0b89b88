"""Rules of saving and resuming."""

from typing import Iterator

from megalite.config.report import nearest_multiples
from megalite.config.root import Config


def saving_has_place_and_interval(config: Config, world_size: int) -> Iterator[str]:
    checkpoint = config.checkpoint
    if checkpoint.save is not None and checkpoint.save_interval is None:
        yield f"save ({checkpoint.save}) needs save_interval: add --save-interval with a number of steps."
    if checkpoint.save is None:
        for name in ("save_interval", "save_retain_interval", "keep_last_checkpoints"):
            if getattr(checkpoint, name) is not None:
                yield f"{name} ({getattr(checkpoint, name)}) needs save: add --save DIR."


def retained_checkpoints_are_written(config: Config, world_size: int) -> Iterator[str]:
    retain, every = config.checkpoint.save_retain_interval, config.checkpoint.save_interval
    if retain is not None and every is not None and retain % every:
        multiples = nearest_multiples(retain, every)
        yield f"save_retain_interval ({retain}) must be a multiple of save_interval ({every}): use {multiples}."


def loading_has_a_place(config: Config, world_size: int) -> Iterator[str]:
    checkpoint = config.checkpoint
    if checkpoint.load is None:
        for name in ("ckpt_step", "finetune", "exit_on_missing_checkpoint", "use_checkpoint_args"):
            value = getattr(checkpoint, name)
            if value:
                yield f"{name}{'' if value is True else f' ({value})'} needs load: add --load DIR, or drop it."
