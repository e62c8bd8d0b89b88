import pytest

from megalite.native import native
from megalite.ops import kernels

ISAS = sorted(name for name in dir(native()) if name.startswith("cpu_")) or ["cpu"]
"""Every instruction set that this machine runs; the best one's name where there is no module to ask."""


@pytest.fixture(params=ISAS)
def isa(request, native_module, monkeypatch):
    """Run the kernels compiled for one instruction set."""
    monkeypatch.setattr(kernels, "module_for", lambda device_type: getattr(native_module, request.param))
    return request.param


@pytest.fixture
def reference(monkeypatch):
    """Run the references."""
    monkeypatch.setenv("MEGALITE_NATIVE", "0")
