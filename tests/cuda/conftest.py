import ctypes
from types import SimpleNamespace

import pytest
import torch
from tests.cuda.build import emulated

from megalite.ops import kernels

ORDERS = {"ascending": 0, "descending": 1, "shuffled": 2}


class Emulation:
    """The emulated module, called as the one for tensors on the CPU is: without a stream."""

    def __init__(self):
        module = emulated()
        self._library = ctypes.CDLL(module.__file__)
        self._functions = {
            name: function if isinstance(function, int) else lambda *args, function=function: function(*args, 0)
            for name, function in vars(module).items()
            if not name.startswith("_")
        }

    def __getattr__(self, name):
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(name) from None

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
    yield module
    module.order("ascending")
