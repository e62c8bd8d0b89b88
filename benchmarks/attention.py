"""Causal attention, forward and backward, beside PyTorch's ``scaled_dot_product_attention``, over shapes of heads.

    python -m benchmarks.attention --dtype bfloat16
"""

import argparse
import functools
import itertools
from dataclasses import dataclass
from typing import Callable

import torch

from benchmarks.paired import race, ratio
from megalite.log import echo, progress, run_main
from megalite.native import native
from megalite.ops import attention

WIDTH, TOKENS = 1024, 2048


@dataclass(frozen=True)
class Shape:
    """TOKENS tokens in sequences of ``sequence``, heads of ``head_dim`` that are WIDTH wide together."""

    sequence: int
    head_dim: int

    def qkv(self, dtype: torch.dtype) -> torch.Tensor:
        size = (self.sequence, TOKENS // self.sequence, WIDTH // self.head_dim, 3, self.head_dim)
        return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(dtype)


def plain(qkv: torch.Tensor) -> torch.Tensor:
    """PyTorch's, in our layout."""
    return attention.reference(qkv, None).reshape(*qkv.shape[:2], -1)


VERSIONS = {"PyTorch": plain, "megalite": attention.causal_attention}


def turn(shape: Shape, dtype: torch.dtype, version: str, rank: int, world_size: int) -> Callable[[], None]:
    """One forward and backward."""
    native()  # loads the module, which tunes the allocator
    function, qkv = VERSIONS[version], shape.qkv(dtype).requires_grad_()
    grad = torch.randn(*qkv.shape[:2], WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)

    def run() -> None:
        torch.autograd.grad(function(qkv), qkv, grad)

    return run


def row(shape: Shape, dtype: torch.dtype, rounds: int, threads: int) -> str:
    """The line of one shape: fastest times, and the ratios within rounds."""
    results = race({name: functools.partial(turn, shape, dtype, name) for name in VERSIONS}, rounds, threads=threads)
    times = " | ".join(f"{1e3 * min(results[name].seconds):.1f}" for name in VERSIONS)
    low, middle, high = ratio(results, "megalite", "PyTorch")
    return f"| {shape.sequence} | {shape.head_dim} | {times} | {middle:.2f} ({low:.2f}-{high:.2f}) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--sequences", type=int, nargs="+", default=[512, 2048], help="divisors of the tokens")
    parser.add_argument("--head-dims", type=int, nargs="+", default=[32, 64, 128], help="divisors of the width")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    echo(f"{args.dtype}, {args.threads} threads, {TOKENS} tokens, heads {WIDTH} wide, {args.rounds} rounds; in ms\n")
    echo("| sequence | head dim | PyTorch | megalite | speed against PyTorch (quartiles) |")
    echo("|---|---|---|---|---|")
    for shape in itertools.starmap(Shape, itertools.product(args.sequences, args.head_dims)):
        progress(str(shape))
        echo(row(shape, getattr(torch, args.dtype), args.rounds, args.threads))


if __name__ == "__main__":
    run_main(main)
