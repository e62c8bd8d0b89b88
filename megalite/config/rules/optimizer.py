"""Rules of the learning rate and the weight decay over training."""

from typing import Iterator

from megalite.config.root import Config


def training_needs_a_rate(config: Config, world_size: int) -> Iterator[str]:
    if config.optimizer.lr is None and not config.training.skip_train:
        yield "lr must be given for training: add --lr."


def rates_are_in_order(config: Config, world_size: int) -> Iterator[str]:
    optimizer = config.optimizer
    for name, low in (("min_lr", optimizer.min_lr), ("lr_warmup_init", optimizer.lr_warmup_init)):
        if optimizer.lr is not None and low > optimizer.lr:
            yield f"{name} ({low}) must be at most lr ({optimizer.lr}): lower {name} or raise lr."


def curves_count_like_training(config: Config, world_size: int) -> Iterator[str]:
    training, optimizer = config.training, config.optimizer
    unit, other = ("iters", "samples") if training.train_iters is not None else ("samples", "iters")
    if training.train_iters is None and training.train_samples is None:
        return
    for name in (f"lr_decay_{other}", f"lr_warmup_{other}", f"lr_wsd_decay_{other}"):
        value = getattr(optimizer, name)
        if value:
            own = name.replace(other, unit)
            yield f"{name} ({value}) cannot be used with train_{unit}, which counts {_WORDS[unit]}: give {own} instead."


_WORDS = {"iters": "steps", "samples": "samples"}


def one_warm_up(config: Config, world_size: int) -> Iterator[str]:
    optimizer = config.optimizer
    lengths = {"lr_warmup_iters": optimizer.lr_warmup_iters, "lr_warmup_samples": optimizer.lr_warmup_samples}
    given = [f"{name} {value}" for name, value in lengths.items() if value]
    if optimizer.lr_warmup_fraction is not None and given:
        yield (
            f"the warm-up must be given once; given lr_warmup_fraction {optimizer.lr_warmup_fraction} and "
            f"{' and '.join(given)}: keep one."
        )


def _unit(config: Config) -> str:
    return "samples" if config.training.train_samples is not None else "iters"


def _decay_length(config: Config) -> int | None:
    """Length of the decay in the unit of training; None when there is no training."""
    unit = _unit(config)
    own = getattr(config.optimizer, f"lr_decay_{unit}")
    return own if own is not None else getattr(config.training, f"train_{unit}")


def warm_up_ends_before_decay(config: Config, world_size: int) -> Iterator[str]:
    unit, length = _unit(config), _decay_length(config)
    warmup = getattr(config.optimizer, f"lr_warmup_{unit}")
    if length is not None and warmup and warmup >= length:
        yield (
            f"lr_warmup_{unit} ({warmup}) must be less than the length of the decay, lr_decay_{unit} or train_{unit} "
            f"({length}): shorten the warm-up or lengthen the decay."
        )


def wsd_has_its_phases(config: Config, world_size: int) -> Iterator[str]:
    optimizer, unit, length = config.optimizer, _unit(config), _decay_length(config)
    if optimizer.lr_decay_style != "WSD":
        return
    last = getattr(optimizer, f"lr_wsd_decay_{unit}")
    if last is None:
        yield f"lr_decay_style WSD needs the length of its last phase: add --lr-wsd-decay-{unit}."
        return
    warmup = getattr(optimizer, f"lr_warmup_{unit}")
    given = f"lr_warmup_{unit} ({warmup})"
    if optimizer.lr_warmup_fraction is not None and length is not None:
        warmup = optimizer.lr_warmup_fraction * length
        given = f"the warm-up ({warmup:g} {_WORDS[unit]} by lr_warmup_fraction {optimizer.lr_warmup_fraction})"
    if length is not None and warmup + last > length:
        yield (
            f"{given} and lr_wsd_decay_{unit} ({last}) together must be at most the length of the decay, "
            f"lr_decay_{unit} or train_{unit} ({length}): shorten one of them."
        )


def weight_decay_follows_its_style(config: Config, world_size: int) -> Iterator[str]:
    optimizer = config.optimizer
    start, end, style = optimizer.start_weight_decay, optimizer.end_weight_decay, optimizer.weight_decay_incr_style
    if style == "constant" and (start is not None or end is not None):
        yield (
            f"start_weight_decay ({start}) and end_weight_decay ({end}) need weight_decay_incr_style linear or cosine; "
            "given constant: change the style, or use weight_decay."
        )
    if style != "constant" and (start is None or end is None):
        yield (
            f"weight_decay_incr_style {style} needs start_weight_decay ({start}) and end_weight_decay ({end}): "
            "add the missing one."
        )


def one_source_of_curves(config: Config, world_size: int) -> Iterator[str]:
    optimizer = config.optimizer
    if optimizer.override_opt_param_scheduler and optimizer.use_checkpoint_opt_param_scheduler:
        yield (
            "the curves of a resumed run come from one place; given override_opt_param_scheduler and "
            "use_checkpoint_opt_param_scheduler: keep one."
        )
