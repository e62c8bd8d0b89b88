"""What holds for every test."""

import pytest

from megalite.log import logger


@pytest.fixture(autouse=True)
def the_log_is_as_it_was():
    """Programs that run inside a test set up logging for their process, which the next test must not see."""
    handlers, propagate, level = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)
