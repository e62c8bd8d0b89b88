"""What a tensor is in the whole model: its canonical name, its global shape and the box of it that a rank holds."""

from megalite.state.box import Box, flat_range_to_boxes
from megalite.state.spec import Init, ParamSpec

__all__ = ["Box", "Init", "ParamSpec", "flat_range_to_boxes"]
