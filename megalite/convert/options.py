"""What a conversion's user may choose of the written checkpoint."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WriteOptions:
    """Choices that some formats have and others do not."""

    tensor_parallel_size: int = 1
    """Of a Megatron-LM checkpoint."""
    pipeline_parallel_size: int = 1
    """Of a Megatron-LM checkpoint."""
    virtual_stages: int = 1
    """Of a Megatron-LM checkpoint, per rank."""
    transformer_impl: str = "transformer_engine"
    """Of a Megatron-LM checkpoint: which layers its names are for."""
    max_shard_bytes: int = 5_000_000_000
    """Largest file of a Hugging Face directory, unless one tensor is larger."""
