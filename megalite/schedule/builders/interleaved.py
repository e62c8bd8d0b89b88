"""Interleaved 1F1B: each rank holds several shorter virtual stages, which divides the bubble by their number.

Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
(arXiv:2104.04473), in Megatron-LM's order. Bubble (p-1)/(vm+p-1) for any m >= p: micro-batches need not be a multiple
of the pipeline's size.
"""

from megalite.errors import ScheduleError
from megalite.schedule.actions import Action, Kind, Schedule
from megalite.schedule.builders._order import chunk_order, group_sizes, one_forward_one_backward


def build(pp: int, virtual: int, num_microbatches: int, *, microbatch_group_size: int | None = None) -> Schedule:
    """Compute actions of interleaved 1F1B over ``pp * virtual`` stages; with one virtual stage a rank it is 1F1B.

    ``microbatch_group_size`` consecutive micro-batches pass through a virtual stage before the rank turns to its next
    one (default: ``pp``); larger groups let more messages travel at once and keep more activations.
    """
    group = pp if microbatch_group_size is None else microbatch_group_size
    if group < pp:
        raise ScheduleError(
            f"the micro-batch group of a virtual stage must not be smaller than the pipeline; given "
            f"--microbatch-group-size-per-virtual-pipeline-stage {group} and {pp} pipeline ranks: "
            f"give at least {pp}, or leave it out."
        )
    sizes = group_sizes(num_microbatches, group, pp)
    order = chunk_order(sizes, virtual)
    # A hop to the next rank needs a head start of one forward for its compute. A second one, as in Megatron-LM, hides
    # the travel time of the messages, of which interleaving has v times as many; it costs p - 1 - r activations more.
    forwards_per_hop = 2 if virtual > 1 else 1
    ranks = []
    for rank in range(pp):
        forwards = [Action(Kind.F, chunk * pp + rank, microbatch) for chunk, microbatch in order]
        backwards = [Action(Kind.B, (virtual - 1 - chunk) * pp + rank, microbatch) for chunk, microbatch in order]
        warmup = (pp - 1 - rank) * forwards_per_hop + (virtual - 1) * sizes[0]
        ranks.append(one_forward_one_backward(forwards, backwards, warmup))
    return Schedule("interleaved", pp, pp * virtual, num_microbatches, tuple(ranks))
