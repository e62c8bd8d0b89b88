"""What a conversion's user may choose, of what is read and of what is written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """What to read of a checkpoint."""

    step: int | None = None
    """The iteration; None for the newest."""
    with_optimizer: bool = True
    """Whether optimizer state is wanted: one that cannot be read is then an error."""
    vocab_size: int | None = None
    """Size of the vocabulary without padding, for formats that store the padding."""


@dataclass(frozen=True)
class WriteOptions:
    """Choices that some formats have and others do not."""

    tensor_parallel_size: int = 1
    """Of a Megatron-LM checkpoint."""
    pipeline_parallel_size: int = 1
    """Of a Megatron-LM checkpoint."""
    virtual_stages: int = 1
    """Of a Megatron-LM checkpoint, per rank."""
    pipeline_layout: str | None = None
    """Of a Megatron-LM checkpoint: what each virtual stage holds, in its own language; None for an even split."""
    distributed_optimizer: bool = False
    """Of a Megatron-LM checkpoint: whether Adam's state is written as the distributed optimizer keeps it."""
    transformer_impl: str = "transformer_engine"
    """Of a Megatron-LM checkpoint: which layers its names are for."""
    max_shard_bytes: int = 5_000_000_000
    """Largest file of a Hugging Face directory, unless one tensor is larger."""
