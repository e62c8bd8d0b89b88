"""The directory is the registry: a name on the command line is a file of a package."""

import importlib
import pkgutil
from types import ModuleType

from megalite.errors import ConfigError


def available(package: str) -> list[str]:
    """Names of the plug-ins of ``package`` (dotted): its modules that do not start with an underscore, sorted."""
    path = importlib.import_module(package).__path__
    return sorted(info.name for info in pkgutil.iter_modules(path) if not info.name.startswith("_"))


def load(package: str, name: str, flag: str) -> ModuleType:
    """Import ``package.name``, as asked for by ``flag``; an unknown name is an error that lists the files there are.

    Hyphens in the name read as underscores.
    """
    names = available(package)
    module = name.replace("-", "_")
    if module not in names:
        raise ConfigError(
            f"{flag} must name a file of {package.replace('.', '/')}/; given {name!r}; choose from: {', '.join(names)}."
        )
    return importlib.import_module(f"{package}.{module}")
