"""GPipe: all forwards, then all backwards.

Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism" (arXiv:1811.06965).
With several virtual stages a rank, micro-batches pass through them in groups of the pipeline's size. Every rank keeps
all micro-batches alive; bubble (p-1)/(vm+p-1).
"""

from megalite.schedule.actions import Action, Kind, Schedule
from megalite.schedule.builders._order import chunk_order, group_sizes


def build(pp: int, virtual: int, num_microbatches: int) -> Schedule:
    """Compute actions of GPipe over ``pp * virtual`` stages."""
    order = chunk_order(group_sizes(num_microbatches, pp, pp), virtual)
    ranks = tuple(
        tuple(
            [Action(Kind.F, chunk * pp + rank, microbatch) for chunk, microbatch in order]
            + [Action(Kind.B, (virtual - 1 - chunk) * pp + rank, microbatch) for chunk, microbatch in order]
        )
        for rank in range(pp)
    )
    return Schedule("gpipe", pp, pp * virtual, num_microbatches, ranks)
