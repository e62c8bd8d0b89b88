"""Weight decay as a pure function of the samples that successful steps have consumed. Megatron-LM's curves."""

import math
from dataclasses import dataclass

from megalite.config import OptimizerConfig, TrainingConfig


@dataclass(frozen=True)
class WeightDecay:
    """A rise (or fall) from ``start`` to ``end`` over ``length`` samples, constant afterwards."""

    start: float
    end: float
    style: str
    length: int

    @staticmethod
    def from_config(optimizer: OptimizerConfig, training: TrainingConfig) -> "WeightDecay":
        """The curve that the flags describe, over the whole training; the global batch size must be resolved."""
        if optimizer.weight_decay_incr_style == "constant":
            return WeightDecay(optimizer.weight_decay, optimizer.weight_decay, "constant", 0)
        start, end = optimizer.start_weight_decay, optimizer.end_weight_decay
        assert start is not None and end is not None, "the configuration is checked to have both ends of the curve"
        length = training.train_samples or (training.train_iters or 0) * (training.global_batch_size or 0)
        return WeightDecay(start, end, optimizer.weight_decay_incr_style, length)

    def at(self, consumed_samples: int) -> float:
        """The decay of the step that starts after ``consumed_samples``."""
        if consumed_samples >= self.length:
            return self.end
        share = consumed_samples / self.length
        if self.style == "cosine":
            share = 0.5 * (math.cos(math.pi * (1.0 - share)) + 1.0)
        return self.start + share * (self.end - self.start)
