"""What a model is asked to learn."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """``num_tokens`` counts ``special_tokens``, which have the first ids; ``unknown`` is the one of them for what
    cannot be spelt. ``min_frequency``, ``cased`` and ``character_coverage`` are as given, None where they are not.
    """

    num_tokens: int
    special_tokens: tuple[str, ...]
    unknown: str | None = None
    min_frequency: int | None = None
    cased: bool = False
    character_coverage: float | None = None
