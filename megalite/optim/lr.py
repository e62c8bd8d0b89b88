"""The learning rate as a pure function of the samples that successful steps have consumed. Megatron-LM's curves."""

import math
from dataclasses import dataclass
from typing import Callable

from megalite.config import OptimizerConfig, TrainingConfig
from megalite.errors import ConfigError

# Share of the way from min_lr to max_lr at x = 0 ... 1 of a decay.
_DECAYS: dict[str, Callable[[float], float]] = {
    "linear": lambda x: 1.0 - x,
    "cosine": lambda x: 0.5 * (math.cos(math.pi * x) + 1.0),
    "exponential": lambda x: 2.0 * 0.5**x - 1.0,
    "minus_sqrt": lambda x: 1.0 - math.sqrt(x),
}


@dataclass(frozen=True)
class LearningRate:
    """A linear warm-up, then a decay; lengths in samples."""

    max_lr: float
    min_lr: float
    init_lr: float
    warmup_samples: float
    decay_samples: int
    """End of the decay, counted from the start of training (the warm-up included)."""
    decay_style: str
    wsd_decay_style: str
    wsd_decay_samples: int
    """Length of the last phase of WSD."""

    @staticmethod
    def from_config(optimizer: OptimizerConfig, training: TrainingConfig) -> "LearningRate":
        """The curve that the flags describe; ``training.global_batch_size`` must be resolved.

        Raises :class:`ConfigError` if the warm-up does not end before the decay does.
        """
        assert optimizer.lr is not None, "the configuration is checked to have a learning rate"
        length = _samples(training.train_samples, training.train_iters, training)
        decay = _samples(optimizer.lr_decay_samples, optimizer.lr_decay_iters, training) or length
        if optimizer.lr_warmup_fraction is not None:
            warmup: float = optimizer.lr_warmup_fraction * decay
        else:
            warmup = _samples(optimizer.lr_warmup_samples or None, optimizer.lr_warmup_iters, training)
        if decay <= warmup:
            raise ConfigError(
                f"the learning-rate warm-up ({warmup:g} samples) must end before the decay does ({decay} samples): "
                "lower --lr-warmup-iters, --lr-warmup-samples or --lr-warmup-fraction, or raise --lr-decay-iters or "
                "--lr-decay-samples."
            )
        return LearningRate(
            max_lr=optimizer.lr,
            min_lr=optimizer.min_lr,
            init_lr=optimizer.lr_warmup_init,
            warmup_samples=warmup,
            decay_samples=decay,
            decay_style=optimizer.lr_decay_style,
            wsd_decay_style=optimizer.lr_wsd_decay_style,
            wsd_decay_samples=_samples(optimizer.lr_wsd_decay_samples, optimizer.lr_wsd_decay_iters, training),
        )

    def at(self, consumed_samples: int) -> float:
        """The rate of the step that starts after ``consumed_samples``.

        Only samples of steps that moved the parameters count: a skipped step leaves the rate where it is.
        """
        if consumed_samples <= self.warmup_samples and self.warmup_samples > 0:
            return self.init_lr + (self.max_lr - self.init_lr) * consumed_samples / self.warmup_samples
        if self.decay_style == "constant":
            return self.max_lr
        if consumed_samples > self.decay_samples:
            return self.min_lr
        if self.decay_style == "inverse-square-root":
            ratio = max(self.warmup_samples, 1.0) / max(consumed_samples, 1)
            return max(self.min_lr, self.max_lr * math.sqrt(ratio))
        return self.min_lr + self._share(consumed_samples) * (self.max_lr - self.min_lr)

    def _share(self, consumed_samples: int) -> float:
        if self.decay_style != "WSD":
            done = consumed_samples - self.warmup_samples
            return _DECAYS[self.decay_style](done / (self.decay_samples - self.warmup_samples))
        done = consumed_samples - (self.decay_samples - self.wsd_decay_samples)
        return 1.0 if done <= 0 else _DECAYS[self.wsd_decay_style](done / self.wsd_decay_samples)


def _samples(samples: int | None, iters: int | None, training: TrainingConfig) -> int:
    """A length in samples, from whichever of the two flags is given; 0 if neither is."""
    if samples is not None:
        return samples
    assert training.global_batch_size is not None, "the global batch size is resolved before curves are built"
    return (iters or 0) * training.global_batch_size
