import importlib
from types import SimpleNamespace

import pytest

from megalite import native


def test_the_module_is_in_use_here(native_module):
    """The tests compare both paths, so they need the module: `make setup` builds it."""
    assert native.native() is native_module
    assert native.reason().startswith("in use (") and "_native" in native.reason()


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("MEGALITE_NATIVE", "0")
    assert native.native() is None and native.reason() == "switched off by MEGALITE_NATIVE=0"


@pytest.fixture
def switched_on(monkeypatch):
    monkeypatch.delenv("MEGALITE_NATIVE", raising=False)


def test_a_missing_module_is_explained(switched_on, monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert native.native() is None
    assert (
        "not built for this Python (.cpython-" in native.reason()
        and "No module named 'megalite._native'" in native.reason()
    )
    assert "MEGALITE_NATIVE=1 pip install" in native.reason()


def test_a_module_of_other_sources_is_not_used(switched_on, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(API=native.API + 1))
    assert native.native() is None and f"revision {native.API + 1}, needed {native.API}" in native.reason()
