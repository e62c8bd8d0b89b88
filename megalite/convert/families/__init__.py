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
