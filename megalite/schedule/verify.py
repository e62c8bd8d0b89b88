"""Proves that a lowered schedule computes everything once, in an order that works, and never deadlocks.

Time and memory grow with the number of actions, so that every plan can be verified before it runs.
"""

from collections import defaultdict

from megalite.errors import ScheduleError
from megalite.schedule.actions import (
    COMPUTES,
    SENDS,
    Action,
    Kind,
    Schedule,
    ends_on_one_rank,
    inputs_of,
    message_of,
    other_end,
    result_of,
)
from megalite.schedule.faults import fault
from megalite.topology.placement import owner

Channel = tuple[int, int, Kind]
"""(sending rank, receiving rank, kind of the send)."""


def verify(schedule: Schedule) -> None:
    """Raise :class:`ScheduleError`, with the place shown, unless the schedule is complete and runs to its end.

    It must do so even on ranks whose every send and receive blocks until the peer arrives.
    """
    check_computes(schedule)
    _check_messages(schedule)
    _check_inputs(schedule)
    _check_channels(schedule)
    _check_progress(schedule)


def check_computes(schedule: Schedule) -> None:
    """Every stage has, for every micro-batch, one F and one B (or I and W), on the rank that owns it.

    In a forward-only schedule it has one F.
    """
    split = {
        (action.stage, action.microbatch)
        for actions in schedule.ranks
        for action in actions
        if action.kind in (Kind.I, Kind.W)
    }
    expected: list[dict[Action, None]] = [{} for _ in schedule.ranks]
    for stage in range(schedule.num_stages):
        for microbatch in range(schedule.num_microbatches):
            backward = (Kind.I, Kind.W) if (stage, microbatch) in split else (Kind.B,)
            for kind in (Kind.F,) if schedule.forward_only else (Kind.F, *backward):
                expected[owner(stage, schedule.pp)][Action(kind, stage, microbatch)] = None
    _check_once(schedule, COMPUTES, expected)


def _check_messages(schedule: Schedule) -> None:
    """Every result that another rank needs is sent once and received once, and nothing else is."""
    expected: list[dict[Action, None]] = [{} for _ in schedule.ranks]
    for rank, actions in enumerate(schedule.ranks):
        for action in actions:
            send = message_of(action, schedule.num_stages)
            if send is not None and not ends_on_one_rank(send, schedule.pp):
                receive = other_end(send)
                expected[rank][send] = None
                expected[owner(receive.stage, schedule.pp)][receive] = None
    _check_once(schedule, frozenset(Kind) - COMPUTES, expected)


def _check_once(schedule: Schedule, kinds: frozenset[Kind], expected: list[dict[Action, None]]) -> None:
    """The actions of these kinds are exactly the expected ones of each rank, each once."""
    for rank, actions in enumerate(schedule.ranks):
        seen: set[Action] = set()
        for step, action in enumerate(actions):
            if action.kind not in kinds:
                continue
            if action not in expected[rank]:
                right = [other for other, wanted in enumerate(expected) if action in wanted]
                where = f"{action} belongs on rank {right[0]}" if right else f"no rank needs {action}"
                raise fault(schedule, f"rank {rank} must do what its stages need and no more; {where}.", {rank: step})
            if action in seen:
                raise fault(schedule, f"an action must happen once; rank {rank} does {action} twice.", {rank: step})
            seen.add(action)
        missing = next((action for action in expected[rank] if action not in seen), None)
        if missing is not None:
            raise fault(schedule, f"rank {rank} must do {missing}; it is missing.", {rank: len(actions)})


def _check_inputs(schedule: Schedule) -> None:
    """On each rank, whatever an action uses comes before it in the list."""
    for rank, actions in enumerate(schedule.ranks):
        done: set[Action] = set()
        for step, action in enumerate(actions):
            missing = next((needed for needed in _needs(schedule, action) if needed not in done), None)
            if missing is not None:
                sentence = f"what an action uses must come before it; rank {rank} does {action} before {missing}."
                raise fault(schedule, sentence, {rank: step})
            done.add(result_of(action))


def _needs(schedule: Schedule, action: Action) -> list[Action]:
    """What must precede an action on its own rank: results made there, receives of results made elsewhere."""
    if action.kind in SENDS:
        return [Action(Kind.F if action.kind is Kind.SEND_F else Kind.B, action.stage, action.microbatch)]
    if action.kind not in COMPUTES:
        return []
    needs = []
    for result in inputs_of(action, schedule.num_stages):
        is_local = owner(result.stage, schedule.pp) == owner(action.stage, schedule.pp)
        needs.append(result if is_local else other_end(message_of(result, schedule.num_stages)))
    return needs


def _check_channels(schedule: Schedule) -> None:
    """From one rank to another, in one direction, receives come in the order of the sends: messages carry no names."""
    sends: dict[Channel, list[tuple[int, Action]]] = defaultdict(list)
    receives: dict[Channel, list[tuple[int, Action]]] = defaultdict(list)
    for actions in schedule.ranks:
        for step, action in enumerate(actions):
            if action.kind in SENDS:
                sends[_channel(schedule, action)].append((step, action))
            elif action.kind not in COMPUTES:
                receives[_channel(schedule, other_end(action))].append((step, action))
    for channel, sent in sends.items():
        source, target, _ = channel
        for (send_step, send), (receive_step, receive) in zip(sent, receives[channel]):
            if other_end(send) != receive:
                raise fault(
                    schedule,
                    f"receives must come in the order of the sends; rank {source} sends {send} when rank {target} "
                    f"expects {other_end(receive)}.",
                    {source: send_step, target: receive_step},
                )


def _channel(schedule: Schedule, send: Action) -> Channel:
    return owner(send.stage, schedule.pp), owner(other_end(send).stage, schedule.pp), send.kind


def _check_progress(schedule: Schedule) -> None:
    """Run to the end with sends and receives that both wait for their peer (the strictest transport there is)."""
    steps = [0] * schedule.pp
    ready = list(range(schedule.pp))
    while ready:
        rank = ready.pop()
        message = _next_message(schedule, steps, rank)
        if message is None:
            continue
        peer = owner(other_end(message).stage, schedule.pp)
        if _next_message(schedule, steps, peer) == other_end(message):
            steps[rank] += 1
            steps[peer] += 1
            ready += [rank, peer]
    if any(step < len(actions) for step, actions in zip(steps, schedule.ranks)):
        raise _deadlock(schedule, steps)


def _next_message(schedule: Schedule, steps: list[int], rank: int) -> Action | None:
    """Move ``rank`` past its computes to its next message; None at the end of its list."""
    actions = schedule.ranks[rank]
    while steps[rank] < len(actions) and actions[steps[rank]].kind in COMPUTES:
        steps[rank] += 1
    return actions[steps[rank]] if steps[rank] < len(actions) else None


def _deadlock(schedule: Schedule, steps: list[int]) -> ScheduleError:
    notes = {}
    for rank, actions in enumerate(schedule.ranks):
        if steps[rank] < len(actions):
            awaited = other_end(actions[steps[rank]])
            notes[rank] = f"waits for {awaited} of rank {owner(awaited.stage, schedule.pp)}"
    sentence = "ranks must not wait for each other in a circle; these would wait for ever."
    return fault(schedule, sentence, {rank: steps[rank] for rank in notes}, notes)
