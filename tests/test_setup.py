"""The build of the native module, run as a user's pip would, on a copy of the sources."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("setup.py", "pyproject.toml", "CMakeLists.txt", "README.md", "megalite")


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


def start(tree, *arguments, **environment):
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", *arguments]
    return subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def modules(tree):
    return [path.name for path in (tree / "megalite").glob("_native*")]


def without_compiler(tmp_path):
    """A PATH with nothing on it but this interpreter's own scripts, which setup.py adds."""
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "CC": "", "CXX": ""}


def test_builds_for_this_interpreter_in_parallel_and_in_a_path_with_spaces(tree):
    builds = [start(tree, MEGALITE_NATIVE="1") for _ in range(2)]
    for build in builds:
        output, _ = build.communicate()
        assert build.returncode == 0, output
    assert modules(tree) == [f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"]
    code = (
        "import numpy, megalite.native as n; m = n.native(); assert m is not None, n.reason(); print(m.__file__);"
        "print(m.build_blend(numpy.array([.3, .7]), 4)[0].tolist())"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.splitlines() == [str(tree / "megalite" / modules(tree)[0]), "[1, 0, 1, 1]"]


def test_without_a_compiler_the_install_goes_on_with_a_warning(tree, tmp_path):
    build = start(tree, **without_compiler(tmp_path))
    output, _ = build.communicate()
    assert build.returncode == 0 and modules(tree) == []
    assert "megalite._native was not built" in output and "MEGALITE_NATIVE=1 makes this warning an error" in output


def test_without_a_compiler_a_required_module_is_an_error(tree, tmp_path):
    build = start(tree, MEGALITE_NATIVE="1", **without_compiler(tmp_path))
    output, _ = build.communicate()
    assert build.returncode != 0 and modules(tree) == []


def test_the_module_can_be_left_out(tree):
    build = start(tree, MEGALITE_NATIVE="0")
    output, _ = build.communicate()
    assert build.returncode == 0 and modules(tree) == [] and "not built" not in output


def test_any_other_choice_is_refused(tree):
    build = start(tree, MEGALITE_NATIVE="yes")
    output, _ = build.communicate()
    assert build.returncode != 0 and "MEGALITE_NATIVE must be 0, 1 or auto; given 'yes'" in output
