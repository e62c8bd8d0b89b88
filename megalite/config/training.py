"""How long and in which precision to train, and how activations are kept."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """training: batches, length, precision, recomputation"""

    micro_batch_size: int = 1
    """Samples that go through the model at once. Changes speed and memory, never the numbers. (Required in
    Megatron-LM.)"""
    global_batch_size: int | None = None
    """Samples per step, over all ranks. Default: micro_batch_size x data-parallel size, with a notice."""
    rampup_batch_size: tuple[int, int, int] | None = None
    """Start, increment, samples: begin with a global batch of START and grow it by INCREMENT, in equal shares of
    SAMPLES samples, up to global_batch_size."""
    train_iters: int | None = None
    """Length of training in steps. Give this or --train-samples."""
    train_samples: int | None = None
    """Length of training in samples. The last step is a whole batch: training ends when no whole one is left."""
    exit_interval: int | None = None
    """Save and leave when the step number is divisible by this."""
    exit_duration_in_mins: int | None = None
    """Save and leave when the program has run for this many minutes, its start included."""
    exit_signal_handler: bool = False
    """Save and leave when the job receives SIGTERM."""
    eval_iters: int = 100
    """Batches in one evaluation; 0: never evaluate."""
    eval_interval: int | None = None
    """Steps between evaluations. Default: evaluate after the last step only."""
    skip_train: bool = False
    """Only evaluate."""
    seed: int = 1234
    """Seed of initial weights, dropout and data order, 0 to 2^63 - 1. The same seed gives the same run at every
    layout."""
    bf16: bool = False
    """Compute in bfloat16, with float32 main parameters and gradients."""
    fp16: bool = False
    """Compute in float16, with float32 main parameters and gradients and a loss scale."""
    fp64: bool = False
    """Compute in float64, to compare layouts. (Not a flag of Megatron-LM.)"""
    grad_reduce_in_bf16: bool = False
    """Under --bf16, sum gradients over data-parallel ranks in bfloat16, for half the traffic. Each rank adds up its
    micro-batches in float32 all the same. (In Megatron-LM that sum is in bfloat16 too.)"""
    loss_scale: float | None = None
    """Constant loss scale for --fp16. Default: a dynamic one."""
    initial_loss_scale: float = 2.0**32
    """First dynamic loss scale."""
    min_loss_scale: float = 1.0
    """Lowest dynamic loss scale."""
    loss_scale_window: int = 1000
    """Steps without overflow before the dynamic loss scale doubles."""
    hysteresis: int = 2
    """Overflows that are tolerated before the dynamic loss scale is halved."""
    check_for_nan_in_loss_and_grad: bool = True
    """End the job when the loss or the gradient norm is not finite. Off, and always under a dynamic loss scale: such
    steps are skipped and counted."""
    recompute_granularity: Literal["full", "selective"] | None = None
    """Drop activations in the forward pass and compute them again in the backward pass: of whole layers (full), or of
    the attention core only (selective)."""
    recompute_method: Literal["uniform", "block"] | None = None
    """With full recomputation: all layers, in groups of --recompute-num-layers (uniform), or the first
    --recompute-num-layers of each virtual stage, one by one (block)."""
    recompute_num_layers: int | None = None
    """Layers in a group (uniform) or of each virtual stage (block)."""
    masked_softmax_fusion: bool = True
    """Use the kernel of scale, mask and softmax where there is one, in the unfused attention core."""
    bias_gelu_fusion: bool = True
    """Use the kernel of bias and GELU where there is one."""
    bias_swiglu_fusion: bool = True
    """Use the kernel of bias and SwiGLU where there is one."""
    bias_dropout_fusion: bool = True
    """Use the kernel of dropout and residual addition where there is one."""
    rope_fusion: bool = True
    """Use the kernel of rotary positions where there is one."""
    gradient_accumulation_fusion: bool = True
    """Let the product of a weight gradient add to the main gradient, where types allow it, instead of making a tensor
    of its own first."""
    cross_entropy_loss_fusion: bool = True
    """Use the kernels of the cross-entropy where there are any. (Off by default in Megatron-LM.) The logits never exist
    as a whole, with them or without."""

    @property
    def dtype(self) -> Literal["float32", "float64", "bfloat16", "float16"]:
        """Name of the dtype of parameters and activations."""
        if self.bf16:
            return "bfloat16"
        if self.fp16:
            return "float16"
        return "float64" if self.fp64 else "float32"
