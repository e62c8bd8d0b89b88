"""How the work is spread over ranks. No field here changes which numbers are computed."""

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """parallel: how the work is spread over ranks; never changes the numbers"""

    tensor_model_parallel_size: int = 1
    """Ranks that share each layer's matrices (TP)."""
    pipeline_model_parallel_size: int = 1
    """Ranks that share the layers one after another (PP)."""
    context_parallel_size: int = 1
    """Ranks that share each sequence (CP). Only 1 for now."""
    expert_model_parallel_size: int = 1
    """Ranks that share the experts (EP). Only 1 for now."""
    sequence_parallel: bool = False
    """Split activations between tensor-parallel regions along the sequence. No effect, with a notice, without tensor
    parallelism."""
    num_layers_per_virtual_pipeline_stage: int | None = None
    """Give each rank several shorter stages of this many layers (interleaved schedule)."""
    num_virtual_stages_per_pipeline_rank: int | None = None
    """Give each rank this many stages (interleaved schedule)."""
    pipeline_model_parallel_layout: str | None = None
    """What each virtual stage holds, in order: E embedding, t one layer, L output and loss, | ends a stage, (..)*n and
    t*n repeat, commas are ignored. Example for 4 stages of 10 layers: Ett|(ttt|)*2,ttL."""
    decoder_first_pipeline_num_layers: int | None = None
    """Number of layers on the first pipeline rank; the rest is split evenly over the others."""
    decoder_last_pipeline_num_layers: int | None = None
    """Number of layers on the last pipeline rank; the rest is split evenly over the others."""
    account_for_embedding_in_pipeline_split: bool = False
    """Count the embedding as one layer when layers are split evenly."""
    account_for_loss_in_pipeline_split: bool = False
    """Count the output layer and loss as one layer when layers are split evenly."""
    microbatch_group_size_per_virtual_pipeline_stage: int | None = None
    """Consecutive micro-batches that a virtual stage works on before the rank's next one. Default: the pipeline
    size."""
    pipeline_schedule: str = "auto"
    """Order of forwards and backwards: a file of megalite/schedule/builders/, or auto: 1F1B, interleaved with virtual
    stages. (Not a flag of Megatron-LM.)"""
    distributed_backend: Literal["auto", "nccl", "gloo"] = "auto"
    """Library for communication. auto: nccl where there are CUDA devices, else gloo. (Megatron-LM's default is
    nccl.)"""
    distributed_timeout_minutes: int = 10
    """A collective that waits longer than this ends the job."""
    use_distributed_optimizer: bool = False
    """Split optimizer state over data-parallel ranks (ZeRO stage 1)."""
    overlap_grad_reduce: bool = True
    """Reduce each gradient bucket as soon as it is complete, while the backward pass goes on. (On by default, unlike in
    Megatron-LM: the numbers are the same.)"""
    overlap_param_gather: bool = False
    """Gather updated parameters while the next forward pass goes on; needs --use-distributed-optimizer."""
    ddp_bucket_size: int | None = None
    """Parameters in one gradient bucket. Default: max(40 000 000, 1 000 000 x data-parallel size)."""
    check_replicas: bool = False
    """After every step, compare the parameters of data-parallel replicas bit for bit and end the job when they differ.
    (Not a flag of Megatron-LM.)"""

    @property
    def layout_num_stages(self) -> int | None:
        """Virtual stages of the pipeline layout; None without a layout, or for one that :mod:`megalite.topology.layout`
        will refuse anyway."""
        if self.pipeline_model_parallel_layout is None:
            return None
        open_groups, last = [1], 0
        for token in re.findall(r"\*\s*\d+|[^\s,]", self.pipeline_model_parallel_layout):
            if token == "(":
                open_groups.append(0)
                continue
            if token.startswith("*"):
                open_groups[-1] += last * (int(token[1:] or 1) - 1)
                continue
            if token == ")" and len(open_groups) == 1:
                return None
            last = open_groups.pop() if token == ")" else int(token == "|")
            open_groups[-1] += last
        return open_groups[0] if len(open_groups) == 1 else None

    def data_parallel_size(self, world_size: int) -> int:
        """Number of model replicas in a world of ``world_size`` ranks."""
        model = self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size
        assert world_size % model == 0, f"a world of {world_size} was checked to be divisible by {model}"
        return world_size // model
