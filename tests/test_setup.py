"""The build of the native module, run as a user's pip would, on a copy of the sources."""

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("setup.py", "pyproject.toml", "CMakeLists.txt", "README.md", "megalite")

INHERITED = {name: value for name, value in os.environ.items() if not name.startswith("MEGALITE_")}


@pytest.fixture
def tree(tmp_path):
    target = tmp_path / "a path with spaces"
    target.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, target / name)
    return target


def build(tree, **environment):
    """Output and exit status of a build in ``tree``."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = {**INHERITED, "MEGALITE_CUDA": "0", **environment}
    run = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return run.stdout, run.returncode


def modules(tree):
    return [path.name for path in (tree / "megalite").glob("_native*")]


def without_compiler(tmp_path):
    """A PATH with nothing on it but this interpreter's own scripts, which setup.py adds."""
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "CC": "", "CXX": ""}


def test_builds_for_this_interpreter_in_a_path_with_spaces(tree):
    output, status = build(tree, MEGALITE_NATIVE="1")
    assert status == 0, output
    assert modules(tree) == [f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"]
    code = (
        "import numpy, megalite.native as n; m = n.native(); assert m is not None, n.reason(); print(m.__file__);"
        "print(m.build_blend(numpy.array([.3, .7]), 4)[0].tolist())"
    )
    environment = {**INHERITED, "PYTHONPATH": str(tree)}
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert output.splitlines() == [str(tree / "megalite" / modules(tree)[0]), "[1, 0, 1, 1]"]


def test_nobody_sees_a_half_written_module(tmp_path):
    """Builds work in scratch directories of their own; what they share is the name that they publish under."""
    publish = runpy.run_path(str(ROOT / "setup.py"))["publish"]
    built = []
    for number in range(4):
        built.append(tmp_path / f"built{number}")
        built[number].write_bytes(bytes([number]) * (1 << 20))
    target = tmp_path / "package" / "module.so"
    publish(built[0], target)
    writers = [threading.Thread(target=lambda path=path: [publish(path, target) for _ in range(20)]) for path in built]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        content = target.read_bytes()
        assert len(content) == 1 << 20 and len(set(content)) == 1
    assert os.listdir(target.parent) == ["module.so"]


def test_without_a_compiler_the_install_goes_on_with_a_warning(tree, tmp_path):
    output, status = build(tree, **without_compiler(tmp_path))
    assert status == 0 and modules(tree) == []
    assert "megalite._native was not built" in output and "MEGALITE_NATIVE=1 makes this warning an error" in output


def test_a_module_of_an_earlier_build_does_not_pass_for_one_that_failed(tree, tmp_path):
    name = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    library = tree / "build" / f"lib.{sysconfig.get_platform()}-cpython-{version}" / "megalite"
    library.mkdir(parents=True)
    for directory in (library, tree / "megalite"):  # where setuptools keeps what it built, and what is imported
        (directory / name).write_bytes(b"of other sources")
    assert modules(tree) == [name]
    output, status = build(tree, **without_compiler(tmp_path))
    assert status == 0 and modules(tree) == [] and not (library / name).exists()
    assert "megalite._native was not built" in output


def test_without_a_compiler_a_required_module_is_an_error(tree, tmp_path):
    output, status = build(tree, MEGALITE_NATIVE="1", **without_compiler(tmp_path))
    assert status != 0 and modules(tree) == [] and "No CMAKE_CXX_COMPILER could be found" in output


def test_the_module_can_be_left_out(tree):
    output, status = build(tree, MEGALITE_NATIVE="0")
    assert status == 0 and modules(tree) == [] and "not built" not in output


def test_any_other_choice_is_refused(tree):
    for variable in ("MEGALITE_NATIVE", "MEGALITE_CUDA"):
        output, status = build(tree, **{variable: "yes"})
        assert status != 0 and f"{variable} must be 0, 1 or auto; given 'yes'" in output


def test_without_nvcc_required_cuda_kernels_are_an_error(tree, tmp_path):
    output, status = build(tree, MEGALITE_CUDA="1", CUDACXX="no-such-program", **without_compiler(tmp_path))
    assert status != 0 and "nvcc was not found: set CUDACXX to it, or have it on PATH" in output
