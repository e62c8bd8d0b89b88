"""1F1B: after a short warm-up each rank alternates one forward and one backward.

Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", with the flush of Narayanan et
al. 2021 (arXiv:2006.09503). Rank r keeps at most p - r micro-batches alive; bubble (p-1)/(m+p-1). On one rank it is
plain gradient accumulation.
"""

from megalite.errors import ScheduleError
from megalite.schedule.actions import Action, Kind, Schedule
from megalite.schedule.builders._order import one_forward_one_backward


def build(pp: int, virtual: int, num_microbatches: int) -> Schedule:
    """Compute actions of 1F1B over ``pp`` stages, one a rank."""
    if virtual != 1:
        raise ScheduleError(
            f"1f1b runs one stage per rank; given {virtual} virtual stages: use --pipeline-schedule interleaved, or "
            f"one stage per rank."
        )
    ranks = []
    for rank in range(pp):
        forwards = [Action(Kind.F, rank, microbatch) for microbatch in range(num_microbatches)]
        backwards = [Action(Kind.B, rank, microbatch) for microbatch in range(num_microbatches)]
        ranks.append(one_forward_one_backward(forwards, backwards, warmup=pp - 1 - rank))
    return Schedule("1f1b", pp, pp, num_microbatches, tuple(ranks))
