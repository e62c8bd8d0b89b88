"""Builds CUDA sources for the CPU with the host compiler and the emulation beside this file."""

import hashlib
import os
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pybind11

EMULATION = Path(__file__).parent / "emulation"
CSRC = Path(__file__).parents[2] / "megalite" / "csrc"
SANITIZE = os.environ.get("MEGALITE_SANITIZE") == "1"
"""Find reads and writes out of bounds; the interpreter must run with the sanitizers' libraries loaded first."""

FLAGS = ["-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]
FLAGS += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
if SANITIZE:
    FLAGS += ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
INCLUDES = [EMULATION, CSRC, Path(pybind11.get_include()), Path(sysconfig.get_path("include"))]


@cache
def emulated() -> ModuleType:
    """megalite._cuda, its kernels running on the CPU."""
    sources = sorted([*(CSRC / "cuda").glob("*.cu"), *(CSRC / "cuda").glob("*.cpp")])
    spec = spec_from_file_location("_cuda", library(sources))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def library(sources: list[Path]) -> Path:
    """A shared library of ``sources`` and the emulation, built once for given contents of all that it could include."""
    target = Path(tempfile.gettempdir()) / f"megalite-emulation-{os.getuid()}" / f"{_digest(sources)}.so"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = _build([*sources, EMULATION / "fibers.cpp"], Path(scratch))
            os.replace(built, target)
    return target


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256(repr((FLAGS, sysconfig.get_config_var("EXT_SUFFIX"), pybind11.__version__)).encode())
    included = [path for root in (EMULATION, CSRC) for path in root.rglob("*.h")]
    for path in sorted([*included, *sources, EMULATION / "fibers.cpp"]):
        digest.update(f"{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(sources: list[Path], scratch: Path) -> Path:
    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(lambda source: _compile(source, scratch), sources))
    built = scratch / "built.so"
    _run("-shared", *objects, "-o", built)
    return built


def _compile(source: Path, scratch: Path) -> Path:
    target = scratch / f"{source.name}.o"
    _run(*(f"-I{path}" for path in INCLUDES), "-x", "c++", "-c", source, "-o", target)
    return target


def _run(*arguments: str | Path) -> None:
    command = [os.environ.get("CXX") or "g++", *FLAGS, *map(str, arguments)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}"
