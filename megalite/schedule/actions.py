"""What a pipeline rank can do, and a schedule: one list of such actions per rank.

A virtual stage ``s`` of ``num_stages`` lives on rank ``s % pp`` (:mod:`megalite.topology.placement`), so a rank owns
``virtual`` of them, and stages that follow each other on one rank (pp 1) exchange nothing.
"""

import re
from dataclasses import dataclass
from enum import Enum

from megalite.errors import ScheduleError
from megalite.topology.placement import owner


class Kind(str, Enum):
    """Kinds of action; the value is the text form."""

    F = "F"
    """Forward of a stage for one micro-batch."""
    B = "B"
    """Its whole backward: gradients of input and weights."""
    I = "I"
    """First half of a split backward: the gradient of the stage's input."""
    W = "W"
    """Second half: the gradients of the weights."""
    SEND_F = "SF"
    """Sends the output of the stage's F to the next stage's rank."""
    RECV_F = "RF"
    """Posts the receive of the input of the stage's F."""
    SEND_B = "SB"
    """Sends the gradient of the stage's input to the previous stage's rank."""
    RECV_B = "RB"
    """Posts the receive of the gradient of the stage's output."""


COMPUTES = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})
SENDS = frozenset({Kind.SEND_F, Kind.SEND_B})

_OTHER_END = {
    Kind.SEND_F: (Kind.RECV_F, +1),
    Kind.RECV_F: (Kind.SEND_F, -1),
    Kind.SEND_B: (Kind.RECV_B, -1),
    Kind.RECV_B: (Kind.SEND_B, +1),
}
_TEXT = re.compile(r"(SF|RF|SB|RB|F|B|I|W)(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Action:
    """One action of one virtual stage (global number) for one micro-batch. Its text form is ``F2.5``, ``SB2.5``."""

    kind: Kind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind.value}{self.stage}.{self.microbatch}"

    @staticmethod
    def parse(text: str) -> "Action":
        """The action of which ``text`` is the text form."""
        match = _TEXT.fullmatch(text)
        if match is None:
            kinds = ", ".join(kind.value for kind in Kind)
            raise ScheduleError(
                f"an action is written as kind, stage, dot and micro-batch, such as F2.5; given {text!r}: use one of "
                f"the kinds {kinds}."
            )
        return Action(Kind(match[1]), int(match[2]), int(match[3]))


@dataclass(frozen=True)
class Schedule:
    """``ranks[r]`` lists, in order, what pipeline rank ``r`` does in one step."""

    name: str
    pp: int
    num_stages: int
    num_microbatches: int
    ranks: tuple[tuple[Action, ...], ...]
    forward_only: bool = False

    def __post_init__(self) -> None:
        if len(self.ranks) != self.pp or self.num_stages % self.pp:
            raise ScheduleError(
                f"a schedule must have one list per pipeline rank and as many stages on each; given {len(self.ranks)} "
                f"lists and {self.num_stages} stages for {self.pp} ranks."
            )

    @property
    def virtual(self) -> int:
        """Virtual stages per rank."""
        return self.num_stages // self.pp

    def __str__(self) -> str:
        return f"{self.name}, pp {self.pp}, {self.num_stages} stages, {self.num_microbatches} micro-batches"


def other_end(message: Action) -> Action:
    """The receive that belongs to a send, or the send that belongs to a receive."""
    kind, step = _OTHER_END[message.kind]
    return Action(kind, message.stage + step, message.microbatch)


def message_of(action: Action, num_stages: int) -> Action | None:
    """The send that hands the result of a compute to the neighbouring stage, or None if it hands on nothing."""
    if action.kind is Kind.F and action.stage + 1 < num_stages:
        return Action(Kind.SEND_F, action.stage, action.microbatch)
    if action.kind in (Kind.B, Kind.I) and action.stage > 0:
        return Action(Kind.SEND_B, action.stage, action.microbatch)
    return None


def result_of(action: Action) -> Action:
    """Key of what an action makes available: I counts as B, for both yield the gradient of the stage's input."""
    return Action(Kind.B, action.stage, action.microbatch) if action.kind is Kind.I else action


def inputs_of(compute: Action, num_stages: int) -> tuple[Action, ...]:
    """Results (:func:`result_of`) that must exist before ``compute`` can run."""
    stage, microbatch = compute.stage, compute.microbatch
    if compute.kind is Kind.F:
        return (Action(Kind.F, stage - 1, microbatch),) if stage > 0 else ()
    if compute.kind is Kind.W:
        return (Action(Kind.B, stage, microbatch),)
    forward = Action(Kind.F, stage, microbatch)
    return (forward, Action(Kind.B, stage + 1, microbatch)) if stage + 1 < num_stages else (forward,)


def ends_on_one_rank(message: Action, pp: int) -> bool:
    """Whether both stages of a message live on the same rank, so that nothing is sent."""
    return owner(message.stage, pp) == owner(other_end(message).stage, pp)
