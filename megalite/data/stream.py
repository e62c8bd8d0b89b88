"""The training data of a run as one stream of samples, and how it goes on when the mix of corpora changes.

A stream may have been begun with another mix. Then every corpus goes on from its own count of consumed samples: it is
read on in the orders that it has been read in, and only when those are used up in a further one, with the next seed.
What that takes is a handful of numbers for each corpus, which checkpoints hold; the samples are a function of them.
"""

import dataclasses
from dataclasses import asdict, dataclass
from typing import Any, Callable, Mapping, Sequence

from megalite.data.blend import BlendedDataset
from megalite.data.dataset import Dataset, Part, Request, Sample, digest


@dataclass(frozen=True)
class Reading:
    """How far a corpus has been read: the first ``consumed`` samples of its orders, one after another.

    An order is known by the number of samples that were asked for (None: one epoch), which decides that of epochs.
    """

    name: str
    """Its prefix, for people."""
    identity: str
    """Which tokens these are, and how they are cut and shuffled."""
    consumed: int = 0
    orders: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class History:
    """What a checkpoint says of the stream of its run: where its mix began, how far each corpus had been read then, and
    how far by now, after ``consumed_samples`` of the whole stream."""

    fingerprint: str
    consumed_samples: int
    start: int
    at_start: tuple[Reading, ...]
    now: tuple[Reading, ...]

    @staticmethod
    def from_meta(meta: Mapping[str, Any]) -> "History | None":
        """Read back from what :meth:`Stream.to_meta` gave; None where a program saved that keeps no such account."""
        stored = meta.get("data_stream")
        if stored is None:
            return None
        at_start, now = (
            tuple(
                Reading(entry["name"], entry["identity"], entry[count], tuple(entry["orders"]))
                for entry in stored["corpora"] + stored["left"]
            )
            for count in ("consumed_at_start", "consumed")
        )
        return History(meta["data_fingerprint"], meta["consumed_samples"], stored["start"], at_start, now)


class Stream:
    """The samples ``start`` and up of a run, from one corpus or a blend; those before were of another mix.

    ``readings`` say how far each corpus had been read at ``start``, in the order of the blend, and ``left`` how far
    those had been read that earlier mixes had and this one has not.
    """

    def __init__(self, samples: Dataset, readings: Sequence[Reading], start: int = 0, left: Sequence[Reading] = ()):
        self.samples, self.readings, self.start, self.left = samples, tuple(readings), start, tuple(left)
        self.fingerprint = digest(["stream", start, samples.fingerprint]) if start else samples.fingerprint
        self._counted = start, [reading.consumed for reading in readings]

    def __len__(self) -> int:
        return self.start + len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        if index < self.start:
            raise IndexError(f"this mix of corpora begins with sample {self.start}; asked for number {index}")
        return self.samples[index - self.start]

    def padding(self) -> Sample:
        return self.samples.padding()

    def preparations(self) -> list[Callable[[], None]]:
        return self.samples.preparations()

    def consumed(self, num_samples: int) -> list[int]:
        """Samples of each corpus among the first ``num_samples`` of the run, those before ``start`` included."""
        counted, counts = self._counted
        if num_samples < counted:
            counted, counts = self.start, [reading.consumed for reading in self.readings]
        if isinstance(self.samples, BlendedDataset):
            more = self.samples.taken(counted - self.start, num_samples - self.start)
        else:
            more = [num_samples - counted]
        counts = [count + further for count, further in zip(counts, more, strict=True)]
        self._counted = num_samples, counts
        return counts

    def to_meta(self, num_samples: int) -> dict[str, Any]:
        """The account for a checkpoint after ``num_samples`` of the run, as JSON data."""
        counts = self.consumed(num_samples)
        corpora = [_entry(reading, count) for reading, count in zip(self.readings, counts, strict=True)]
        left = [_entry(reading, reading.consumed) for reading in self.left]
        return {"start": self.start, "corpora": corpora, "left": left}


def _entry(reading: Reading, count: int) -> dict[str, Any]:
    return {**asdict(reading), "consumed_at_start": reading.consumed, "consumed": count}


def identity(part: Part, request: Request) -> str:
    """The same wherever the corpus lies and whatever is asked of it, so that its samples can be counted."""
    return digest([part.content, part.begin, part.end, request.seq_length, request.seed])


def find_readings(
    parts: Sequence[Part], request: Request, known: Sequence[Reading]
) -> tuple[list[Reading], list[Reading]]:
    """How far each part has been read according to ``known``, and what of ``known`` is none of them.

    A corpus that is given twice is found twice.
    """
    found = []
    of_identity: dict[str, list[Reading]] = {}
    for reading in known:
        of_identity.setdefault(reading.identity, []).append(reading)
    for part in parts:
        key = identity(part, request)
        candidates = of_identity.get(key)
        reading = candidates.pop(0) if candidates else Reading(part.corpus.prefix, key)
        found.append(dataclasses.replace(reading, name=part.corpus.prefix))
    return found, [reading for candidates in of_identity.values() for reading in candidates]
