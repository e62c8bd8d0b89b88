"""The compiled module ``megalite._native``, when there is one.

Every caller has a path in numpy or torch with the same results, so a missing module costs time, not correctness.
"""

import importlib
import os
import sysconfig
from types import ModuleType

API = 1
"""The revision of the module's functions that this Python code calls (``kApi`` in csrc/bindings.cpp)."""


def native() -> ModuleType | None:
    """The module, or None; :func:`reason` tells why."""
    return _find()[0]


def reason() -> str:
    """One sentence on whether the native module is in use, and why not if it is not."""
    return _find()[1]


def _find() -> tuple[ModuleType | None, str]:
    if os.environ.get("MEGALITE_NATIVE") == "0":
        return None, "switched off by MEGALITE_NATIVE=0"
    try:
        module = importlib.import_module("megalite._native")
    except ImportError as error:
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        return (
            None,
            f"not built for this Python ({suffix}): {error}. `MEGALITE_NATIVE=1 pip install -v .` builds it or tells why",
        )
    if module.API != API:
        return (
            None,
            f"built from other sources (revision {module.API}, needed {API}): install megalite again to rebuild it",
        )
    return module, f"in use ({module.__file__})"
