"""Builds ``megalite._native`` with CMake, Ninja and pybind11; everything else about the package is in pyproject.toml.

Environment: ``MEGALITE_NATIVE=0`` leaves the module out, ``MEGALITE_NATIVE=1`` makes a failed build an error. By
default a failed build is a warning, and megalite runs on its numpy paths, which give identical results.
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
CHOICE = os.environ.get("MEGALITE_NATIVE", "auto")
WARNING = """
************************************************************************************************
megalite._native was not built: {error}
megalite works without it, on slower numpy paths with identical results. To have it, install
a C++17 compiler and install megalite again; MEGALITE_NATIVE=1 makes this warning an error.
************************************************************************************************
"""


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
        try:
            self.build_with_cmake(extension)
        except (OSError, ImportError, subprocess.CalledProcessError) as error:
            if CHOICE == "1":
                raise
            sys.stderr.write(WARNING.format(error=error))

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
                str(ROOT),
                "-B",
                scratch,
                "-G",
                "Ninja",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
                f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={scratch}/out",
                "-DPYBIND11_FINDPYTHON=ON",
            ]
            subprocess.run(configure, check=True, env=environment)
            subprocess.run([cmake, "--build", scratch], check=True, env=environment)
            (built,) = (Path(scratch) / "out").iterdir()
            publish(built, target)

    def copy_extensions_to_source(self) -> None:
        """The last step of an editable install; setuptools' own copy overwrites the module in place."""
        build_py = self.get_finalized_command("build_py")
        for extension in self.extensions:
            in_place, regular = self._get_inplace_equivalent(build_py, extension)
            if os.path.exists(regular):
                publish(Path(regular), Path(in_place))


def extensions() -> list[Extension]:
    if CHOICE not in ("0", "1", "auto"):
        raise SystemExit(f"MEGALITE_NATIVE must be 0, 1 or auto; given {CHOICE!r}.")
    return [] if CHOICE == "0" else [Extension("megalite._native", sources=[], optional=True)]


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": CMakeBuild})
