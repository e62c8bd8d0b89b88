"""The compiled modules ``megalite._native`` and ``megalite._cuda``, where there are any.

Every caller has a path in numpy or torch with the same results, so a missing module costs time, not correctness.
"""

import importlib
import os
import sysconfig
from types import ModuleType

API = 6
"""The revision of the modules' functions that this Python code calls (``kApi`` in csrc/api.h)."""


def native() -> ModuleType | None:
    """The module for the CPU, or None; :func:`reason` tells why."""
    return _find("megalite._native", "MEGALITE_NATIVE")[0]


def reason() -> str:
    """One sentence on whether the native module is in use, and why not if it is not."""
    return _find("megalite._native", "MEGALITE_NATIVE")[1]


def cuda() -> ModuleType | None:
    """The module of the CUDA kernels, or None; :func:`cuda_reason` tells why. It can be imported without a GPU."""
    return _find("megalite._cuda", "MEGALITE_CUDA")[0]


def cuda_reason() -> str:
    """:func:`reason` for the CUDA kernels."""
    return _find("megalite._cuda", "MEGALITE_CUDA")[1]


def _find(name: str, choice: str) -> tuple[ModuleType | None, str]:
    """A module and what to say of it; ``choice`` is its variable, but MEGALITE_NATIVE=0 switches everything off."""
    for variable in dict.fromkeys(("MEGALITE_NATIVE", choice)):
        if os.environ.get(variable) == "0":
            return None, f"switched off by {variable}=0"
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        return (
            None,
            f"not built for this Python ({suffix}): {error}. `{choice}=1 pip install -v .` builds it or tells why",
        )
    if module.API != API:
        return (
            None,
            f"built from other sources (revision {module.API}, needed {API}): install megalite again to rebuild it",
        )
    return module, f"in use ({module.__file__})"
