"""Dependencies that only some inputs need."""

import importlib
from types import ModuleType

from megalite.errors import MegaliteError


def require_package(name: str, purpose: str, error: type[MegaliteError]) -> ModuleType:
    """The module ``name`` of an optional package, which ``purpose`` needs; raises ``error`` where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise error(
            f"{purpose} needs the package {package}, which is not installed: pip install megalite[{package}]."
        ) from None
