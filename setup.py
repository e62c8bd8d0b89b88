"""Builds the compiled modules with CMake, Ninja and pybind11; everything else about the package is in pyproject.toml.

``megalite._native`` (index builders, CPU kernels) needs a C++ compiler, ``megalite._cuda`` (CUDA kernels) nvcc too,
found as ``CUDACXX``, on PATH or in /usr/local/cuda. Environment: ``MEGALITE_NATIVE=0`` leaves both out,
``MEGALITE_CUDA=0`` the second one; ``MEGALITE_NATIVE=1`` and ``MEGALITE_CUDA=1`` make a failed build an error. By
default ``megalite._cuda`` is built where nvcc is, and a failed build is a warning: megalite runs without the modules,
on its numpy and torch paths.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
NATIVE, CUDA = "megalite._native", "megalite._cuda"
CHOICES = {NATIVE: "MEGALITE_NATIVE", CUDA: "MEGALITE_CUDA"}
PROJECTS = {NATIVE: ROOT, CUDA: ROOT / "megalite" / "csrc" / "cuda"}
WARNING = """
************************************************************************************************
{module} was not built: {error}
megalite works without it, on slower numpy and torch paths. To have it, install a C++17 compiler
(and nvcc for CUDA) and install megalite again; {choice}=1 makes this warning an error.
************************************************************************************************
"""


def choice(module: str) -> str:
    """What the environment says about a module: 0, 1 or auto."""
    value = os.environ.get(CHOICES[module], "auto")
    if value not in ("0", "1", "auto"):
        raise SystemExit(f"{CHOICES[module]} must be 0, 1 or auto; given {value!r}.")
    return value


def nvcc() -> str | None:
    """The CUDA compiler, if there is one."""
    chosen = os.environ.get("CUDACXX")
    candidates = [chosen] if chosen else ["nvcc", "/usr/local/cuda/bin/nvcc"]
    return next(filter(None, map(shutil.which, candidates)), None)


def tool_path() -> str:
    """PATH with this interpreter's scripts first, where the packages cmake and ninja put their programs."""
    return os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])


def publish(built: Path, target: Path) -> None:
    """Copy under a name of its own, then rename: nobody ever imports, or has mapped, a half-written module."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(descriptor)
    partial = Path(name)
    try:
        shutil.copy2(built, partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


class CMakeBuild(build_ext):
    """Each build has a scratch directory of its own, so that parallel and interrupted ones do not meet."""

    def build_extension(self, extension: Extension) -> None:
        Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)  # of an earlier build, should this one fail
        try:
            self.build_with_cmake(extension)
        except (OSError, ImportError, subprocess.CalledProcessError) as error:
            if choice(extension.name) == "1":
                raise
            sys.stderr.write(WARNING.format(module=extension.name, error=error, choice=CHOICES[extension.name]))

    def build_with_cmake(self, extension: Extension) -> None:
        import pybind11  # a requirement of the build alone

        target = Path(self.get_ext_fullpath(extension.name)).resolve()
        environment = {**os.environ, "PATH": tool_path()}
        cmake = shutil.which("cmake", path=environment["PATH"])
        if cmake is None:
            raise FileNotFoundError("cmake was not found on PATH")
        with tempfile.TemporaryDirectory(prefix="megalite-build-") as scratch:
            configure = [
                cmake,
                "-S",
                str(PROJECTS[extension.name]),
                "-B",
                scratch,
                "-G",
                "Ninja",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
                f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={scratch}/out",
                "-DPYBIND11_FINDPYTHON=ON",
            ]
            if extension.name == CUDA:
                if nvcc() is None:
                    raise FileNotFoundError("nvcc was not found: set CUDACXX to it, or have it on PATH")
                configure.append(f"-DCMAKE_CUDA_COMPILER={nvcc()}")
            subprocess.run(configure, check=True, env=environment)
            subprocess.run([cmake, "--build", scratch], check=True, env=environment)
            (built,) = (Path(scratch) / "out").iterdir()
            publish(built, target)

    def copy_extensions_to_source(self) -> None:
        """The last step of an editable install; setuptools' own copy overwrites the module in place.

        A module that could not be built is none: one of other sources must not stay in use.
        """
        build_py = self.get_finalized_command("build_py")
        for extension in self.extensions:
            in_place, regular = self._get_inplace_equivalent(build_py, extension)
            if os.path.exists(regular):
                publish(Path(regular), Path(in_place))
            else:
                Path(in_place).unlink(missing_ok=True)


def extensions() -> list[Extension]:
    native, cuda = choice(NATIVE), choice(CUDA)
    if native == "0":
        return []
    modules = [NATIVE, CUDA] if cuda == "1" or (cuda == "auto" and nvcc() is not None) else [NATIVE]
    return [Extension(module, sources=[], optional=True) for module in modules]


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": CMakeBuild})
