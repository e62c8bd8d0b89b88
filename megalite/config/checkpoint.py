"""Where checkpoints are written and what is read back."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """checkpoint: saving and resuming"""

    save: str | None = None
    """Directory for checkpoints."""
    save_interval: int | None = None
    """Steps between checkpoints. One is also written at the end, on every orderly exit, and whenever a process of the
    job receives SIGUSR1, after which training goes on."""
    save_retain_interval: int | None = None
    """Keep checkpoints of steps divisible by this for good; of the others only the newest (see
    --keep-last-checkpoints)."""
    keep_last_checkpoints: int | None = None
    """Delete all but this many newest checkpoints. Default: keep all, or 1 under --save-retain-interval. (Not a flag of
    Megatron-LM.)"""
    keep_weights_of_older: bool = False
    """Of the checkpoints that these two would delete, delete the optimizer state alone. (Not a flag of Megatron-LM.)"""
    async_save: bool = False
    """Write checkpoints while training goes on: it stops only to copy the state to host memory, which must hold it
    once more."""
    verify_integrity: bool = False
    """Store checksums of all files of a checkpoint, and compare them before loading one."""
    continue_on_save_failure: bool = False
    """When a checkpoint cannot be written, on a full disk say, warn and train on. The last one of the run must succeed
    even so. (Not a flag of Megatron-LM.)"""
    load: str | None = None
    """Directory to resume from: its newest complete checkpoint, at any layout. A directory without one is an error,
    unless it is the --save directory of a job that starts for the first time. A Hugging Face directory: begin with its
    weights, as the model that it describes."""
    ckpt_step: int | None = None
    """Resume from the checkpoint of this step instead of the newest."""
    finetune: bool = False
    """Load parameters only: optimizer state, step and sample counters start anew."""
    no_save_optim: bool = False
    """Leave optimizer state out of checkpoints. Such a checkpoint cannot continue a run exactly."""
    save_hf: bool = False
    """Also write the parameters as a Hugging Face directory: the folder huggingface of each checkpoint. (Not a flag of
    Megatron-LM.)"""
    no_load_optim: bool = False
    """Load parameters and counters, but start with fresh optimizer state."""
    exit_on_missing_checkpoint: bool = False
    """--load without a checkpoint is an error even when the job starts for the first time in its --save directory."""
    dist_ckpt_strictness: Literal[
        "raise_all", "raise_unexpected", "assume_ok_unexpected", "log_all", "log_unexpected"
    ] = "raise_all"
    """What to do where checkpoint and model differ in names. raise_all: refuse. raise_unexpected and
    assume_ok_unexpected: warn of tensors that the model does not want, refuse if any that it wants are missing. The
    others: warn of both; what is missing keeps its initial values."""
    use_checkpoint_args: bool = False
    """Take the model's fields from the checkpoint's configuration, except those given on the command line or in the
    --config file."""
    allow_data_change: bool = False
    """Resume although the training data, its order or its blend are not those of the checkpoint: each corpus goes on
    from its own count of consumed samples, and new ones begin. (Not a flag of Megatron-LM.)"""
