"""Families of Hugging Face models. The directory is the registry: a new family is one new file.

A file ``NAME.py`` has

- ``MODEL_TYPES``: the values of ``model_type`` in config.json that it reads;
- ``BASE_PREFIX``: the prefix of the base model's tensors, which directories of a base model alone lack;
- ``BUFFERS``: a pattern of tensors that hold nothing learned;
- ``read_config(fields) -> dict``: fields of :class:`megalite.config.ModelConfig` from config.json;
- ``obstacles(model) -> list[str]``: why the family cannot hold a model; empty if it can;
- ``write_config(model, model_type) -> dict``: config.json; ``model_type`` is what the model came as, or None;
- ``layout(model) -> Layout``: where its tensors lie.
"""

from types import ModuleType
from typing import Any

from megalite import plugins
from megalite.config import ModelConfig
from megalite.errors import CheckpointError, ConfigError


def _families() -> dict[str, ModuleType]:
    return {name: plugins.load(__name__, name, "model_type") for name in plugins.available(__name__)}


def family_of(model_type: Any, where: str) -> ModuleType:
    """The family that reads a ``model_type``, which ``where`` says. Raises :class:`CheckpointError` if none does."""
    modules = _families().values()
    for module in modules:
        if model_type in module.MODEL_TYPES:
            return module
    known = ", ".join(kind for module in modules for kind in module.MODEL_TYPES)
    raise CheckpointError(f"{where}: model_type must be one of {known}; it is {model_type!r}.")


def fitting_family(model: ModelConfig, came_as: str | None) -> ModuleType:
    """The family that holds a model: the one of ``came_as``, a ``model_type``, if it still can, or else the first.

    Raises :class:`ConfigError` that says of each why it cannot.
    """
    modules = _families()
    obstacles = {name: module.obstacles(model) for name, module in modules.items()}
    fitting = [module for name, module in modules.items() if not obstacles[name]]
    if not fitting:
        reasons = "".join(f"\n  {name}: {'; '.join(found)}" for name, found in obstacles.items())
        raise ConfigError(f"no Hugging Face family that megalite knows holds this model:{reasons}")
    return next((module for module in fitting if came_as in module.MODEL_TYPES), fitting[0])
