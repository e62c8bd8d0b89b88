"""Which samples each rank trains on. A pure function: nothing to save, nothing that depends on workers or restarts."""


def microbatches(
    consumed_samples: int, global_batch_size: int, micro_batch_size: int, dp_rank: int, dp: int
) -> list[range]:
    """Sample numbers of each micro-batch of one data-parallel rank in the step after ``consumed_samples`` samples.

    Micro-batch m of rank r covers ``micro_batch_size`` samples from ``consumed + (m * dp + r) * micro_batch_size`` on,
    so that all ranks together cover the same ``global_batch_size`` samples at any micro-batch and data-parallel size.
    """
    at_once = micro_batch_size * dp
    assert global_batch_size % at_once == 0, (
        f"global batch {global_batch_size} must be divisible by micro-batch {micro_batch_size} x data parallel {dp}"
    )
    first = consumed_samples + dp_rank * micro_batch_size
    starts = range(first, first + global_batch_size, at_once)
    return [range(start, start + micro_batch_size) for start in starts]
