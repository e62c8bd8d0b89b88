"""The errors a user can cause.

Every message says three things: what must hold, what was given, and what to change. They are raised
before work starts where that is possible, on every rank, and end the program without a traceback
(:func:`megalite.log.run_main`). Asserts, by contrast, are for megalite's own bugs.
"""


class MegaliteError(Exception):
    """Base of every error that the user can mend."""

    same_on_every_rank = False
    """Set on an error that every rank of a job raises alike, so that it is shown once."""


class ConfigError(MegaliteError):
    """A flag or a combination of flags that cannot be honoured."""


class DataError(MegaliteError):
    """A corpus, an index or a cache that is missing, damaged or unsuitable."""


class TokenizerError(MegaliteError):
    """A tokenizer that is missing, damaged or unsuitable."""


class CheckpointError(MegaliteError):
    """A checkpoint that is missing, damaged or does not fit the run."""


class ScheduleError(MegaliteError):
    """A pipeline schedule that cannot be built or would not run."""


class DistributedError(MegaliteError):
    """A process group that cannot be formed, or a rank that failed."""


class NumericsError(MegaliteError):
    """A loss or gradient that is not finite, or replicas that differ."""
