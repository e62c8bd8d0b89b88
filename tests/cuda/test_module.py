"""megalite._cuda as nvcc builds it, on a machine with or without a GPU."""

import importlib
import os
import shutil

import pytest
from tests.cuda.build import emulated

from megalite import native
from megalite.ops.kernels import module_for


@pytest.mark.parametrize("variable", ["MEGALITE_NATIVE", "MEGALITE_CUDA"])
def test_it_can_be_switched_off(native_module, monkeypatch, variable):
    monkeypatch.setenv(variable, "0")
    assert native.cuda() is None and native.cuda_reason() == f"switched off by {variable}=0"
    assert native.native() is (None if variable == "MEGALITE_NATIVE" else native_module)


def test_a_missing_module_is_explained(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    for variable in ("MEGALITE_NATIVE", "MEGALITE_CUDA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(importlib, "import_module", missing)
    assert native.cuda() is None and module_for("cuda") is None
    assert "No module named 'megalite._cuda'" in native.cuda_reason()
    assert "`MEGALITE_CUDA=1 pip install -v .` builds it or tells why" in native.cuda_reason()


def test_built_for_all_targets_and_imported_where_there_is_nvcc(native_module):
    """The install compiles every kernel for every target; without a driver a call says so."""
    wanted = shutil.which(os.environ.get("CUDACXX", "nvcc")) is not None and os.environ.get("MEGALITE_CUDA") != "0"
    assert not wanted or module_for("cuda") is not None, native.cuda_reason()


CPU_ONLY = {"attention_forward", "attention_backward", "add_column_sums", "add_elements"}
"""On a GPU PyTorch's attention serves (megalite/ops/attention.py), and its sums and additions, which make no copies."""


@pytest.mark.parametrize("build", [emulated, native.cuda], ids=["emulated", "nvcc"])
def test_kernels_have_the_arguments_of_those_for_the_cpu(native_module, build):
    """And a stream: so megalite/ops calls both alike. By the signatures that pybind11 writes into the docstrings."""
    ours, theirs = build(), native_module.cpu
    if ours is None:
        assert "not built" in native.cuda_reason()
        return
    names = sorted({name for name, value in vars(theirs).items() if callable(value)} - CPU_ONLY)
    assert names == sorted(name for name, value in vars(ours).items() if callable(value) and not name.startswith("_"))
    for name in names:
        *arguments, stream = _arguments(getattr(ours, name))
        assert arguments == _arguments(getattr(theirs, name)) and "SupportsInt" in stream, name


def _arguments(function):
    inside = function.__doc__.split("(", 1)[1].rsplit(")", 1)[0]
    return [argument.split(": ")[1] for argument in inside.split(", ")]
