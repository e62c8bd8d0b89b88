"""Orders that several builders share."""

from typing import Sequence

from megalite.schedule.actions import Action


def group_sizes(num_microbatches: int, group: int, smallest: int) -> list[int]:
    """Cut the micro-batches into groups that pass through a rank's virtual stages together, larger ones first.

    Groups have ``group`` members. A remainder of at least ``smallest`` (the pipeline's size) is a last, shorter group,
    as in Megatron-LM. A smaller one, which Megatron-LM refuses, is spread over the other groups: the first member of a
    group shorter than the pipeline would reach the rank's next stage only after a wait, and beside longer groups the
    backwards that 1F1B puts between would wait in a circle.
    """
    num_groups, rest = divmod(num_microbatches, group)
    if num_groups == 0:
        return [num_microbatches]
    if rest >= smallest:
        return [group] * num_groups + [rest]
    share, extra = divmod(rest, num_groups)
    return [group + share + 1] * extra + [group + share] * (num_groups - extra)


def chunk_order(sizes: Sequence[int], virtual: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch) in forward order: each group passes through chunk 0, then chunk 1, ...

    A chunk is one of a rank's virtual stages.
    """
    order, first = [], 0
    for size in sizes:
        order += [(chunk, microbatch) for chunk in range(virtual) for microbatch in range(first, first + size)]
        first += size
    return order


def one_forward_one_backward(forwards: list[Action], backwards: list[Action], warmup: int) -> tuple[Action, ...]:
    """``warmup`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    warmup = min(warmup, len(forwards))
    actions = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards):
        actions += [forward, backward]
    return tuple(actions + backwards[len(forwards) - warmup :])
