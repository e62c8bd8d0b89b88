"""The precision of the residual stream."""

import torch

from megalite.config import ModelConfig


def residual_dtype(model: ModelConfig, dtype: torch.dtype) -> torch.dtype:
    """That of the residual stream of a model whose parameters have ``dtype``."""
    return torch.promote_types(dtype, torch.float32) if model.fp32_residual_connection else dtype
