"""The update rule and its curves over training."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """optimizer: update rule, learning rate and weight decay"""

    optimizer: str = "adam"
    """Update rule: a file of megalite/optim/rules/. adam decouples weight decay (AdamW)."""
    lr: float | None = None
    """Highest learning rate. Required for training."""
    min_lr: float = 0.0
    """Lowest learning rate of the decay."""
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root", "WSD"] = "linear"
    """Curve from --lr to --min-lr."""
    lr_decay_iters: int | None = None
    """Steps to reach --min-lr. Default: train_iters."""
    lr_decay_samples: int | None = None
    """Samples to reach --min-lr. Default: train_samples."""
    lr_warmup_fraction: float | None = None
    """Share of the decay length in which the rate rises linearly to --lr."""
    lr_warmup_iters: int = 0
    """Steps in which the rate rises linearly to --lr."""
    lr_warmup_samples: int = 0
    """Samples in which the rate rises linearly to --lr."""
    lr_warmup_init: float = 0.0
    """Learning rate at the start of the warm-up."""
    lr_wsd_decay_style: Literal["exponential", "linear", "cosine", "minus_sqrt"] = "exponential"
    """Curve of the last phase of WSD."""
    lr_wsd_decay_iters: int | None = None
    """Steps of the last phase of WSD."""
    lr_wsd_decay_samples: int | None = None
    """Samples of the last phase of WSD."""
    weight_decay: float = 0.01
    """Weight decay of matrices; biases and norm weights have none."""
    start_weight_decay: float | None = None
    """Weight decay at the start, unless --weight-decay-incr-style is constant."""
    end_weight_decay: float | None = None
    """Weight decay at the end, unless --weight-decay-incr-style is constant."""
    weight_decay_incr_style: Literal["constant", "linear", "cosine"] = "constant"
    """Curve from --start-weight-decay to --end-weight-decay."""
    clip_grad: float = 1.0
    """Largest global gradient norm; larger gradients are scaled down to it. 0: no clipping."""
    adam_beta1: float = 0.9
    """Decay of Adam's mean of gradients."""
    adam_beta2: float = 0.999
    """Decay of Adam's mean of squared gradients."""
    adam_eps: float = 1e-8
    """Added to the root of Adam's mean of squared gradients."""
    sgd_momentum: float = 0.9
    """Momentum of sgd."""
    lion_beta1: float = 0.95
    """Weight of Lion's momentum in the direction of its update."""
    lion_beta2: float = 0.98
    """Decay of Lion's momentum."""
    override_opt_param_scheduler: bool = False
    """On resuming, use the learning-rate and weight-decay curves given here instead of the checkpoint's. Without this
    flag and the next, differing ones are an error."""
    use_checkpoint_opt_param_scheduler: bool = False
    """On resuming, use the checkpoint's learning-rate and weight-decay curves instead of those given here."""
