"""Fixtures of the tests of the configuration."""

import logging

import pytest


@pytest.fixture
def notices(caplog):
    """The lines logged so far."""
    caplog.set_level(logging.INFO, logger="megalite")
    return lambda: [record.getMessage() for record in caplog.records]
