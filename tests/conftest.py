"""What holds for every test."""

import os

import pytest

from megalite import native
from megalite.log import logger


@pytest.fixture(autouse=True)
def the_log_is_as_it_was():
    """Programs that run inside a test set up logging for their process, which the next test must not see."""
    handlers, propagate, level = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(scope="session")
def native_module():
    """``megalite._native``, for tests that need it by name. MEGALITE_NATIVE=0 skips them, and nothing else does."""
    if os.environ.get("MEGALITE_NATIVE") == "0":
        pytest.skip("needs megalite._native, which MEGALITE_NATIVE=0 switches off")
    assert native.native() is not None, native.reason()
    return native.native()


@pytest.fixture(params=["native", "python"])
def implementation(request, monkeypatch):
    """Run a test with the native module and without it."""
    if request.param == "native":
        return request.getfixturevalue("native_module")
    monkeypatch.setenv("MEGALITE_NATIVE", "0")
