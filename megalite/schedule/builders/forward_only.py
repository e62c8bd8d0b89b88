"""Forward only: what evaluation runs. Nothing stays alive for a backward; bubble (p-1)/(vm+p-1)."""

from megalite.schedule.actions import Action, Kind, Schedule
from megalite.schedule.builders._order import chunk_order, group_sizes


def build(pp: int, virtual: int, num_microbatches: int) -> Schedule:
    """Forwards over ``pp * virtual`` stages, in the order in which training would run them."""
    order = chunk_order(group_sizes(num_microbatches, pp, pp), virtual)
    ranks = tuple(
        tuple(Action(Kind.F, chunk * pp + rank, microbatch) for chunk, microbatch in order) for rank in range(pp)
    )
    return Schedule("forward_only", pp, pp * virtual, num_microbatches, ranks, forward_only=True)
