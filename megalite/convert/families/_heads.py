"""Parts of the fused query, key and value projection that other programs keep as three matrices."""

from megalite.config import ModelConfig
from megalite.convert.layout import Layout
from megalite.state import Box


def add_separate_qkv(layout: Layout, model: ModelConfig, name: str, key: str) -> None:
    """Add ``{name}.weight`` and ``.bias`` as ``{key}q_proj``, ``k_proj`` and ``v_proj``, heads of a group together."""
    groups, per_group = model.query_groups, model.num_attention_heads // model.query_groups
    for kind in ("weight", "bias"):
        shape = layout.shapes.get(f"{name}.{kind}")
        if shape is None:
            continue
        inner = shape[2:]
        for projection, start, count in (("q", 0, per_group), ("k", per_group, 1), ("v", per_group + 1, 1)):
            box = Box((0, start) + (0,) * len(inner), (groups, count, *inner))
            rows = groups * count * model.head_dim
            layout.add(f"{name}.{kind}", f"{key}{projection}_proj.{kind}", (rows, *inner[1:]), box=box)


def add_same(layout: Layout, name: str, key: str) -> None:
    """Add the weight, and the bias if there is one, of a layer that is the same on both sides."""
    for kind in ("weight", "bias"):
        if f"{name}.{kind}" in layout.shapes:
            layout.add(f"{name}.{kind}", f"{key}.{kind}")
