"""A slow, obvious executor: ranks with blocking sends and receives that carry named values in unnamed messages.

Written without megalite's passes, to judge them: it reads the action's text and knows only where stages live.
"""

import re


class Stuck(Exception):
    """The schedule cannot run, or not all of it."""


class Rendezvous:
    def __init__(self, schedule):
        self.pp, self.last = schedule.pp, schedule.num_stages - 1
        self.schedule = schedule
        self.queues = [[self._read(str(action)) for action in actions] for actions in schedule.ranks]
        self.values = [set() for _ in self.queues]
        """Activations and gradients that a rank holds and nobody has used."""
        self.saved = [set() for _ in self.queues]
        self.half = [set() for _ in self.queues]
        self.forwards, self.backwards = [], []

    @staticmethod
    def _read(text):
        kind, stage, microbatch = re.fullmatch(r"([A-Z]+)(\d+)\.(\d+)", text).groups()
        return kind, int(stage), int(microbatch)

    def run(self):
        """Run to the end; raises Stuck."""
        while any(self.queues):
            if not any([self._advance(rank) for rank in range(self.pp)]):
                raise Stuck("deadlock")
        everything = [(s, m) for s in range(self.last + 1) for m in range(self.schedule.num_microbatches)]
        if sorted(self.forwards) != everything or sorted(self.backwards) != (
            [] if self.schedule.forward_only else everything
        ):
            raise Stuck("not every forward and backward ran once")
        if any(self.values) or any(self.half):
            raise Stuck("values left over")

    def _advance(self, rank):
        if not self.queues[rank]:
            return False
        kind, stage, microbatch = self.queues[rank][0]
        if kind in ("RF", "RB"):
            return False  # its sender moves both
        if kind in ("SF", "SB"):
            return self._exchange(rank, kind, stage, microbatch)
        if stage % self.pp != rank or stage > self.last:
            raise Stuck("a stage of another rank")
        {"F": self._forward, "B": self._backward, "I": self._backward_input, "W": self._backward_weight}[kind](
            rank, stage, microbatch
        )
        self.queues[rank].pop(0)
        return True

    def _exchange(self, rank, kind, stage, microbatch):
        step = 1 if kind == "SF" else -1
        peer = (stage + step) % self.pp
        if peer == rank or not self.queues[peer]:
            return False
        wanted, wanted_stage, wanted_microbatch = self.queues[peer][0]
        if wanted != "R" + kind[1] or (wanted_stage - step) % self.pp != rank or wanted_stage % self.pp != peer:
            return False
        self._take(rank, kind[1], stage, microbatch)
        if (wanted_stage - step, wanted_microbatch) != (stage, microbatch):
            raise Stuck("the receiver takes one message for another")
        self._put(peer, kind[1], stage, microbatch)
        self.queues[rank].pop(0)
        self.queues[peer].pop(0)
        return True

    def _take(self, rank, *value):
        if value not in self.values[rank]:
            raise Stuck("a value that is not there")
        self.values[rank].remove(value)

    def _put(self, rank, *value):
        if value in self.values[rank]:
            raise Stuck("a value that is there already")
        self.values[rank].add(value)

    def _forward(self, rank, stage, microbatch):
        if stage > 0:
            self._take(rank, "F", stage - 1, microbatch)
        if stage < self.last:
            self._put(rank, "F", stage, microbatch)
        self.saved[rank].add((stage, microbatch))
        self.forwards.append((stage, microbatch))

    def _backward(self, rank, stage, microbatch):
        if (stage, microbatch) not in self.saved[rank]:
            raise Stuck("a backward before its forward")
        if stage < self.last:
            self._take(rank, "B", stage + 1, microbatch)
        if stage > 0:
            self._put(rank, "B", stage, microbatch)
        self.backwards.append((stage, microbatch))

    def _backward_input(self, rank, stage, microbatch):
        self._backward(rank, stage, microbatch)
        self.half[rank].add((stage, microbatch))

    def _backward_weight(self, rank, stage, microbatch):
        if (stage, microbatch) not in self.half[rank]:
            raise Stuck("W before I")
        self.half[rank].remove((stage, microbatch))
