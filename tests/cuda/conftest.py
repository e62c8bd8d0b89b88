import ctypes
from functools import partial

import pytest
from tests.cuda.build import emulated

from megalite.ops import kernels

ORDERS = {"ascending": 0, "descending": 1, "shuffled": 2}


class Emulation:
    """The emulated module, called as the one for tensors on the CPU is: without a stream."""

    def __init__(self):
        self._module = emulated()
        self._library = ctypes.CDLL(self._module.__file__)
        self.num_calls = 0

    def __getattr__(self, name):
        value = getattr(self._module, name)
        return partial(self._call, value) if callable(value) else value

    def _call(self, kernel, *args):
        self.num_calls += 1
        kernel(*args, 0)

    def order(self, name: str) -> None:
        """Let threads run in the order ``name`` of ``ORDERS``."""
        self._library.emulation_set_order(ORDERS[name])


@pytest.fixture(scope="session")
def module():
    return Emulation()


@pytest.fixture
def emulation(module, monkeypatch):
    """Let the ops run their CUDA kernels, emulated, on CPU tensors."""
    monkeypatch.setattr(kernels, "module_for", lambda device_type: module)
    calls_before = module.num_calls
    yield module
    module.order("ascending")
    assert module.num_calls > calls_before, "no CUDA kernel was run"
