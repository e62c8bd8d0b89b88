"""Every fused op, forward and backward, beside the same function in eager and in compiled PyTorch.

All contestants have the tuned allocator, so that the kernels alone are compared. GB/s count the fewest bytes that the
function must read and write, against those of a copy on the same threads.

    python benchmarks/ops.py --dtype bfloat16 --only rms_norm --only swiglu
"""

import argparse
import functools
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.nn.functional as F

from benchmarks.paired import race
from megalite.log import echo, progress, run_main
from megalite.native import native
from megalite.ops import philox
from megalite.ops.accumulate import add_column_sums_
from megalite.ops.adamw import AdamW, adamw_, reference_adamw_
from megalite.ops.attention import causal_attention
from megalite.ops.bias_gelu import bias_gelu
from megalite.ops.dropout_residual import Mask, dropout_residual
from megalite.ops.layer_norm import add_layer_norm_, layer_norm
from megalite.ops.linear_cross_entropy import LossForm, Tokens, linear_cross_entropy
from megalite.ops.norm import sum_of_squares
from megalite.ops.rms_norm import rms_norm
from megalite.ops.rotary import RotaryLayout, rotate_
from megalite.ops.softmax import scaled_causal_softmax
from megalite.ops.squared_relu import squared_relu
from megalite.ops.swiglu import swiglu
from megalite.state import Box

ROWS, HIDDEN, FFN = 8192, 1024, 4096
SEQUENCE, BATCH, HEADS, HEAD_DIM = 512, 4, 8, 128
ROTARY_BATCH = 32
TOKENS, VOCAB, NARROW = 2048, 8192, 256
FLAT = 10_000_000
COPY = 16 * 2**20
MASK = Mask(1, "dropout/benchmark", torch.arange(ROWS), 0.1)
NUMBERS = AdamW(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, step=10, grad_factor=0.5)

Function = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """A function in our version and in plain torch; both are differentiated if ``shapes`` are those of inputs."""

    ours: Function
    plain: Function
    shapes: tuple[tuple[int, ...], ...]
    passes: float
    """Elements read and written in all, in units of the number of elements of the first shape."""
    backward: bool = True


def _plain_dropout(x: torch.Tensor, residual: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return residual + F.dropout(x + bias, MASK.p)


def _plain_swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def _plain_softmax(scores: torch.Tensor) -> torch.Tensor:
    hidden = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu_(1)
    return (scores * 0.1).masked_fill(hidden, -torch.inf).softmax(-1)


def _angles() -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.outer(torch.arange(SEQUENCE * ROTARY_BATCH), torch.arange(HEAD_DIM // 2) / 100)
    angles = angles.view(SEQUENCE, ROTARY_BATCH, 1, 1, HEAD_DIM // 2)
    return angles.cos(), angles.sin()


class _Handed(torch.autograd.Function):
    """Its input as a tensor of its own that may be changed in place, as a projection hands it over, without a copy."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(0).set_(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def _rotary(x: torch.Tensor) -> torch.Tensor:
    return rotate_(_Handed.apply(x), *_ANGLES, RotaryLayout((SEQUENCE, ROTARY_BATCH, HEADS, 1, HEAD_DIM), 1, False))


def _plain_rotary(x: torch.Tensor) -> torch.Tensor:
    cos, sin = (torch.cat((part, part), -1).to(x.dtype) for part in _ANGLES)
    heads = x.view(SEQUENCE, ROTARY_BATCH, HEADS, 1, HEAD_DIM)
    first, second = heads.chunk(2, dim=-1)
    return (heads * cos + torch.cat((-second, first), -1) * sin).view(x.shape)


_ANGLES = _angles()
_TARGETS = torch.arange(TOKENS) % VOCAB


def _loss(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    tokens = Tokens(hidden, _TARGETS, torch.ones(TOKENS))
    return linear_cross_entropy(tokens, weight, LossForm(VOCAB, VOCAB), lambda add: add(torch.zeros(VOCAB, NARROW)))


def _plain_loss(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy((hidden @ weight.t()).float(), _TARGETS, reduction="sum")


def _normal(x: torch.Tensor) -> torch.Tensor:
    return philox.normal_box(1, "benchmark", x.shape, Box.whole(tuple(x.shape)), 0.02, x.dtype)


def _bias_grad(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(HIDDEN)
    add_column_sums_(total, x)
    return total


def _plain_attention(qkv: torch.Tensor) -> torch.Tensor:
    query, key, value = (part.permute(1, 2, 0, 3) for part in qkv.unbind(3))
    y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return y.permute(2, 0, 1, 3).reshape(SEQUENCE, BATCH, HEADS * HEAD_DIM)


CASES = {
    "causal_attention": Case(causal_attention, _plain_attention, ((SEQUENCE, BATCH, HEADS, 3, HEAD_DIM),), 0),
    "layer_norm": Case(
        functools.partial(layer_norm, epsilon=1e-5),
        lambda x, w, b: F.layer_norm(x, (HIDDEN,), w, b),
        ((ROWS, HIDDEN), (HIDDEN,), (HIDDEN,)),
        5,
    ),
    "add_layer_norm": Case(
        lambda x, r, w, b: add_layer_norm_(_Handed.apply(x), r, w, b, 1e-5),
        lambda x, r, w, b: (F.layer_norm(x + r, (HIDDEN,), w, b), x + r),
        ((ROWS, HIDDEN), (ROWS, HIDDEN), (HIDDEN,), (HIDDEN,)),
        8,
    ),
    "rms_norm": Case(
        functools.partial(rms_norm, epsilon=1e-5),
        lambda x, w: F.rms_norm(x, (HIDDEN,), w, 1e-5),
        ((ROWS, HIDDEN), (HIDDEN,)),
        5,
    ),
    "bias_gelu": Case(bias_gelu, lambda x, b: F.gelu(x + b, approximate="tanh"), ((ROWS, FFN), (FFN,)), 5),
    "squared_relu": Case(squared_relu, lambda x, b: F.relu(x + b).square(), ((ROWS, FFN), (FFN,)), 5),
    "swiglu": Case(swiglu, _plain_swiglu, ((ROWS, FFN),), 4),
    "causal_softmax": Case(
        lambda x: scaled_causal_softmax(x, 0.1), _plain_softmax, ((BATCH * HEADS, SEQUENCE, SEQUENCE),), 3.5
    ),
    "rotary": Case(_rotary, _plain_rotary, ((SEQUENCE, ROTARY_BATCH, HEADS * HEAD_DIM),), 4),
    "dropout_residual": Case(
        lambda x, r, b: dropout_residual(x, r, b, MASK),
        _plain_dropout,
        ((ROWS, HIDDEN), (ROWS, HIDDEN), (HIDDEN,)),
        5,
    ),
    "linear_cross_entropy": Case(_loss, _plain_loss, ((TOKENS, NARROW), (VOCAB, NARROW)), 0),
    "adamw": Case(
        lambda p, g, m, v: adamw_(p, g, (m, v.abs_()), NUMBERS),
        lambda p, g, m, v: reference_adamw_(p, g, (m, v.abs_()), NUMBERS),
        ((FLAT,),) * 4,
        7,
        backward=False,
    ),
    "bias_grad": Case(
        _bias_grad, lambda x: x.sum(0, dtype=torch.float32), ((ROWS, HIDDEN),), 1, backward=False
    ),
    "sum_of_squares": Case(sum_of_squares, lambda x: x.float().square().sum(), ((FLAT,),), 1, backward=False),
    "normal_fill": Case(_normal, lambda x: torch.randn_like(x) * 0.02, ((FLAT,),), 1, backward=False),
}


def turn(name: str, dtype: torch.dtype, version: str, rank: int, world_size: int) -> Callable[[], None]:
    """One forward and backward of a case in one version."""
    native()  # loads the module, which tunes the allocator
    case, generator = CASES[name], torch.Generator().manual_seed(0)
    dtype = torch.float32 if name == "adamw" else dtype
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in case.shapes]
    function = case.ours if version == "megalite" else case.plain
    if version == "compiled":
        function = torch.compile(function, dynamic=False)
    if not case.backward:
        return lambda: function(*inputs)
    inputs = [x.requires_grad_() for x in inputs]
    with torch.no_grad():
        outputs = case.plain(*inputs)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    grads = [
        torch.ones_like(y) if y.dim() == 0 else torch.randn(y.shape, generator=generator).to(y.dtype) for y in outputs
    ]

    def run() -> None:
        torch.autograd.grad(function(*inputs), inputs, grads, allow_unused=True)

    return run


def copy(rank: int, world_size: int) -> Callable[[], None]:
    """A copy of 64 MiB."""
    native()
    source, target = torch.ones(COPY), torch.empty(COPY)
    return lambda: target.copy_(source)


def row(name: str, dtype: torch.dtype, rounds: int, threads: int) -> str:
    """The line of one case: times, GB/s and share of the copy's."""
    versions = {version: functools.partial(turn, name, dtype, version) for version in ("eager", "compiled", "megalite")}
    results = race({"copy": copy, **versions}, rounds, warmup=3, threads=threads, untimed=1)
    fastest = {version: min(result.seconds) for version, result in results.items()}
    case = CASES[name]
    size = 4 if name == "adamw" else dtype.itemsize
    num_bytes = case.passes * torch.Size(case.shapes[0]).numel() * size
    copy_rate = 8 * COPY / fastest["copy"]
    rate = num_bytes / fastest["megalite"]
    share = f"{rate / 1e9:.1f} | {rate / copy_rate:.0%}" if num_bytes else "- | -"
    times = " | ".join(f"{1e3 * fastest[version]:.2f}" for version in versions)
    gains = " | ".join(f"{fastest[version] / fastest['megalite']:.2f}" for version in ("eager", "compiled"))
    return f"| {name} | {times} | {gains} | {share} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--only", choices=CASES, action="append", help="this op; may be given several times")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    echo(f"{args.dtype}, {args.threads} threads, fastest of {args.rounds} rounds; times in ms\n")
    echo("| op | eager | compiled | megalite | faster than eager | than compiled | GB/s | of copy |")
    echo("|---|---|---|---|---|---|---|---|")
    for name in args.only or CASES:
        progress(name)
        echo(row(name, getattr(torch, args.dtype), args.rounds, args.threads))


if __name__ == "__main__":
    run_main(main)
