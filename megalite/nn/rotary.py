"""Rotary positions (Su et al. 2021): pairs of channels of a query or key turn by an angle linear in its position."""

import math

import torch

from megalite.config import ModelConfig
from megalite.ops.rotary import RotaryLayout, rotate_

Angles = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines."""

_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_CONTEXT = 1.0, 4.0, 8192
"""Llama 3.1's frequency scaling: wavelengths above context / LOW are stretched, those below context / HIGH kept."""


def frequencies(model: ModelConfig) -> torch.Tensor:
    """Angle per position of each rotated pair of channels: float64 [rotated channels / 2]."""
    num_rotated = int(model.head_dim * model.rotary_percent)
    assert num_rotated % 2 == 0, f"the number of rotated channels ({num_rotated}) must be even"
    turn = model.rotary_base ** -(torch.arange(0, num_rotated, 2, dtype=torch.float64) / num_rotated)
    if model.rotary_seq_len_interpolation_factor is not None:
        turn = turn / model.rotary_seq_len_interpolation_factor
    if model.use_rope_scaling:
        periods = _LLAMA3_CONTEXT * turn / (2 * math.pi)
        kept = ((periods - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW)).clamp(0, 1)
        turn = turn * (kept + (1 - kept) / model.rope_scaling_factor)
    return turn


class Rotary:
    """Tables of cosines and sines by position, made once per device and shared by all layers of a rank.

    Angles are computed in float64 and stored in float32 (float64 for float64 models): bfloat16 would merge positions.
    """

    def __init__(self, model: ModelConfig):
        self.interleaved = model.rotary_interleaved
        self._model = model
        self._tables: dict[tuple[torch.device, torch.dtype], Angles] = {}
        self._last: tuple[torch.Tensor | None, int, Angles | None] = (None, 0, None)

    def at(self, position_ids: torch.Tensor, dtype: torch.dtype) -> Angles:
        """Cosines and sines for position ids [b, s] of a model of ``dtype``: each [s, b, 1, 1, rotated / 2].

        Layers that ask one after the other about one micro-batch get the same tensors, so that they keep one copy.
        """
        dtype = dtype if dtype == torch.float64 else torch.float32
        ids, version, angles = self._last
        if ids is not position_ids or version != position_ids._version or angles[0].dtype != dtype:
            tables = self._tables_of(position_ids.device, dtype)
            angles = tuple(table[position_ids.t()][:, :, None, None] for table in tables)
            self._last = (position_ids, position_ids._version, angles)
        return angles

    def _tables_of(self, device: torch.device, dtype: torch.dtype) -> Angles:
        if (device, dtype) not in self._tables:
            num_positions = max(self._model.num_positions, self._model.seq_length)
            angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), frequencies(self._model))
            self._tables[device, dtype] = (angles.cos().to(device, dtype), angles.sin().to(device, dtype))
        return self._tables[device, dtype]

    def rotate_(
        self,
        x: torch.Tensor,
        shape: tuple[int, ...],
        num_heads: int,
        position_ids: torch.Tensor,
        fused: bool = True,
    ) -> torch.Tensor:
        """Rotate in place, and return, ``x`` seen as ``shape``, [s, b, groups, heads, d]: ``num_heads`` of each group.

        ``x`` must be a tensor of its own, not a view, that the backward of what made it does not need.
        """
        cos, sin = self.at(position_ids, x.dtype)
        return rotate_(x, cos, sin, RotaryLayout(tuple(shape), num_heads, self.interleaved), fused)
