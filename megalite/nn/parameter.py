"""Making parameters: from their spec and the seed alone."""

import torch
from torch import nn

from megalite.nn.context import LayerContext
from megalite.nn.wgrad import attach
from megalite.ops import philox
from megalite.parallel.group import Group
from megalite.state import Box, ParamSpec


def make_parameter(spec: ParamSpec, ctx: LayerContext, local_shape: tuple[int, ...] | None = None) -> nn.Parameter:
    """The part ``spec.box`` of the parameter, with its initial value; ``.spec`` is set.

    ``local_shape`` may have more rows (dim 0) than the box; those are zero. Each element's initial value depends on the
    seed, the parameter's name and the element's global index: not on the layout, nor on what was made before.
    """
    shape = local_shape if local_shape is not None else spec.box.extent
    assert shape[1:] == spec.box.extent[1:] and shape[0] >= spec.box.extent[0], (
        f"{spec.name}: {shape} cannot hold {spec.box}"
    )
    param = nn.Parameter(torch.zeros(shape, dtype=ctx.dtype, device=ctx.device))
    rows = param.data[: spec.box.extent[0]]
    if spec.init.kind == "normal":
        rows.copy_(
            philox.normal_box(
                ctx.seed,
                f"init/{spec.name}",
                spec.global_shape,
                spec.box,
                spec.init.std,
                dtype=ctx.dtype,
                device=ctx.device,
            )
        )
    elif spec.init.kind == "ones":
        rows.fill_(1)
    param.spec = spec
    attach(param)
    return param


def shard_box(global_shape: tuple[int, ...], dim: int, group: Group) -> Box:
    """This rank's equal part of a tensor along ``dim``. That it divides is a rule of :mod:`megalite.config.check`."""
    size = global_shape[dim]
    assert size % group.size == 0, f"dim {dim} of {global_shape} must be divisible by {group.size} ranks"
    local_size = size // group.size
    offset = tuple(group.rank * local_size if d == dim else 0 for d in range(len(global_shape)))
    return Box(offset, tuple(local_size if d == dim else n for d, n in enumerate(global_shape)))
