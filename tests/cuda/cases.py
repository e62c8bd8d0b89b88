"""Every op that has kernels, beside the same function in plain torch: what tests/cuda and tests/gpu compare."""

from dataclasses import dataclass
from typing import Callable

import torch
import torch.nn.functional as F
from tests.ops.truth import randn

from megalite.ops import philox
from megalite.ops.bias_gelu import bias_gelu
from megalite.ops.dropout_residual import Mask, dropout_residual
from megalite.ops.layer_norm import add_layer_norm_, layer_norm
from megalite.ops.rms_norm import add_rms_norm_, rms_norm
from megalite.ops.rotary import RotaryLayout, rotate_
from megalite.ops.softmax import scaled_causal_softmax, scaled_masked_softmax
from megalite.ops.squared_relu import squared_relu
from megalite.ops.swiglu import swiglu

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
COLS = [1, 31, 33, 127, 128, 1000, 2048, 4097]
"""Row lengths: of one warp and of a block, in packs of 16 bytes and not."""

EPSILON, SCALE, DROP = 1e-5, 0.3, 0.25


@dataclass(frozen=True)
class Case:
    """An op and its plain version, and the shapes of its inputs for rows of a length: "rows" is the matrix."""

    op: Callable
    plain: Callable
    parts: tuple[str, ...] = ("rows",)
    """``rows`` [rows, cols], ``double`` [rows, 2 cols], ``vector`` [cols], ``vector2`` [2 cols]."""

    def shapes(self, rows: int, cols: int) -> list[tuple[int, ...]]:
        shapes = {"rows": (rows, cols), "double": (rows, 2 * cols), "vector": (cols,), "vector2": (2 * cols,)}
        return [shapes[part] for part in self.parts]

    def inputs(self, rows: int, cols: int, dtype: torch.dtype) -> list[torch.Tensor]:
        return [
            1.5 * randn(*shape, dtype=dtype, seed=seed) + 0.5 for seed, shape in enumerate(self.shapes(rows, cols))
        ]


def plain_layer_norm(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias, EPSILON)


def plain_rms_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, EPSILON)


def plain_swiglu(x, bias=0):
    gate, up = (x + bias).chunk(2, dim=-1)
    return F.silu(gate) * up


def hidden(x):
    """A mask for rows seen as two heads' queries: some keys are hidden, and all of the first query's."""
    keys = torch.arange(x.shape[-1], device=x.device)
    queries = torch.arange(x.shape[0] // 2, device=x.device).unsqueeze(1)
    return ((keys * 7 + queries) % 3 == 0) | (queries == 0)


def masked_softmax(x):
    queries, keys = x.shape[0] // 2, x.shape[1]
    scores = x.view(1, 2, queries, keys)
    return scaled_masked_softmax(scores, hidden(x).view(1, 1, queries, keys), SCALE).view(x.shape)


def plain_masked_softmax(x):
    mask = hidden(x).repeat(2, 1)
    seen = ~mask.all(-1, keepdim=True)
    return F.softmax((x * SCALE).masked_fill(mask & seen, -torch.inf), -1).masked_fill(~seen, 0)


def causal_softmax(x):
    return scaled_causal_softmax(x.view(2, -1, x.shape[-1]), SCALE).view(x.shape)


def plain_causal_softmax(x):
    queries, keys = x.shape[0] // 2, x.shape[1]
    mask = torch.ones(queries, keys, dtype=torch.bool, device=x.device).triu(1 + keys - queries).repeat(2, 1)
    seen = ~mask.all(-1, keepdim=True)
    return F.softmax((x * SCALE).masked_fill(mask & seen, -torch.inf), -1).masked_fill(~seen, 0)


def row_numbers(x):
    return torch.arange(x.shape[0], device=x.device) * 3 + (1 << 33)


def dropout(x, residual, bias):
    return dropout_residual(x, residual, bias, Mask(5, "case", row_numbers(x), DROP))


def plain_dropout(x, residual, bias):
    keep = philox.keep_mask(5, "case", row_numbers(x), x.shape[1], DROP)
    return torch.where(keep, (x + bias) / (1 - DROP), 0) + residual


CASES = {
    "layer_norm": Case(lambda *a: layer_norm(*a, EPSILON), plain_layer_norm, ("rows", "vector", "vector")),
    "rms_norm": Case(lambda *a: rms_norm(*a, EPSILON), plain_rms_norm, ("rows", "vector")),
    "add_layer_norm": Case(
        lambda x, *rest: add_layer_norm_(x.clone(), *rest, EPSILON),
        lambda x, r, w, b: (plain_layer_norm(x + r, w, b), x + r),
        ("rows", "rows", "vector", "vector"),
    ),
    "add_rms_norm": Case(
        lambda x, *rest: add_rms_norm_(x.clone(), *rest, EPSILON),
        lambda x, r, w: (plain_rms_norm(x + r, w), x + r),
        ("rows", "rows", "vector"),
    ),
    "gelu": Case(bias_gelu, lambda x: F.gelu(x, approximate="tanh")),
    "bias_gelu": Case(bias_gelu, lambda x, b: F.gelu(x + b, approximate="tanh"), ("rows", "vector")),
    "squared_relu": Case(squared_relu, lambda x, b: F.relu(x + b).square(), ("rows", "vector")),
    "swiglu": Case(swiglu, plain_swiglu, ("double",)),
    "bias_swiglu": Case(swiglu, plain_swiglu, ("double", "vector2")),
    "masked_softmax": Case(masked_softmax, plain_masked_softmax),
    "causal_softmax": Case(causal_softmax, plain_causal_softmax),
    "dropout": Case(dropout, plain_dropout, ("rows", "rows", "vector")),
    "dropout_only": Case(
        lambda x: dropout_residual(x, None, None, Mask(5, "case", row_numbers(x), DROP)),
        lambda x: plain_dropout(x, 0, 0),
    ),
    "bias_residual": Case(
        lambda x, r, b: dropout_residual(x, r, b, None), lambda x, r, b: x + b + r, ("rows", "rows", "vector")
    ),
}


def rotary(shape: tuple[int, ...], num_heads: int, half: int, interleaved: bool) -> Case:
    """Rotation of x [s, b, groups, heads, head dim], given as rows of all but the last dim."""
    positions = torch.arange(shape[0] * shape[1], dtype=torch.float64).view(*shape[:2], 1, 1, 1)
    angles = positions / 3 ** torch.arange(half, dtype=torch.float64)
    layout = RotaryLayout(shape, num_heads, interleaved)

    def op(x):
        cos, sin = (table.float().to(x.device) for table in (angles.cos(), angles.sin()))
        return rotate_(x.clone(), cos, sin, layout)

    def plain(x):
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        cos, sin = (table.to(x.device, dtype) for table in (angles.cos(), angles.sin()))
        seen = x.view(shape)
        heads, rest = seen[..., :num_heads, : 2 * half], seen[..., :num_heads, 2 * half :]
        pairs = heads.unflatten(-1, (half, 2) if interleaved else (2, half))
        first, second = pairs.unbind(-1 if interleaved else -2)
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), -1 if interleaved else -2)
        rotated = torch.cat((turned.flatten(-2).to(x.dtype), rest), -1)
        return torch.cat((rotated, seen[..., num_heads:, :]), -2).view(x.shape)

    return Case(op, plain)
