"""``--split``: which part of a corpus trains, validates and tests."""

import math
import re

from megalite.errors import ConfigError

SPLITS = ("train", "valid", "test")
DEFAULT_SPLIT = "969,30,1"
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")


def parse_split(text: str) -> tuple[float, float, float]:
    """Shares of train, valid and test, summing to one. ``"99,1"`` reads as ``"99,1,0"``.

    Raises :class:`ConfigError` unless there are one to three non-negative numbers with a positive, finite sum.
    """
    fields = [field.strip() for field in text.split(",")]
    shares = [float(field) for field in fields if _NUMBER.fullmatch(field)]
    total = sum(shares)
    if len(shares) != len(fields) or len(fields) > len(SPLITS) or not 0 < total < math.inf:
        raise ConfigError(
            "--split must be one to three non-negative numbers, separated by commas, with a positive sum: the "
            f"shares of train, valid and test; given {text!r}: write for example 969,30,1."
        )
    shares += [0.0] * (len(SPLITS) - len(shares))
    return tuple(share / total for share in shares)


def split_ranges(text: str, count: int) -> list[tuple[int, int]]:
    """The range ``[begin, end)`` of each split in ``count`` sequences, rounded as Megatron-LM does.

    A split of share zero has an empty range, and so may one whose share is less than half a sequence.
    """
    ranges = []
    begin = 0.0
    for share in parse_split(text):
        end = begin + share
        ranges.append((round(begin * count), round(end * count)))
        begin = end
    return ranges
