"""A small configuration that breaks no rule, the flags that it comes from, and what is wrong with others."""

import pytest

from megalite.config import Config
from megalite.config.cli import parse
from megalite.errors import ConfigError

MODEL = ["--num-layers", "4", "--hidden-size", "48", "--num-attention-heads", "12", "--seq-length", "32"]
TRAINING = ["--micro-batch-size", "2", "--global-batch-size", "8", "--train-iters", "10", "--lr", "1e-3"]
FLAGS = [*MODEL, *TRAINING, "--data-path", "corpus"]


def valid(**fields: object) -> Config:
    """The configuration of :data:`FLAGS` with the given fields changed."""
    return parse(FLAGS).replace(**fields)


def problems(*flags: str) -> str:
    """The error that :data:`FLAGS` with ``flags`` after them ends in."""
    with pytest.raises(ConfigError) as caught:
        parse([*FLAGS, *flags])
    assert caught.value.same_on_every_rank
    return str(caught.value)
