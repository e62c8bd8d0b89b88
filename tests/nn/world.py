"""What tests of layers share: a layer's context on a rank, and the rank's part of a whole tensor."""

from functools import cache
from itertools import product

import torch

from megalite.nn.context import LayerContext
from megalite.parallel.context import ParallelContext
from megalite.parallel.group import Group
from megalite.state import Box
from megalite.topology.mesh import Mesh


def layer_context(
    rank: int, world_size: int, sequence_parallel: bool = False, dtype: torch.dtype = torch.float64
) -> LayerContext:
    return LayerContext(tp=_tp_group(rank, world_size), sequence_parallel=sequence_parallel, dtype=dtype, seed=7)


@cache
def _tp_group(rank: int, world_size: int) -> Group:
    return ParallelContext(Mesh(tp=world_size), rank, torch.device("cpu")).group("tp")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Float64 numbers, the same on every rank."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def own(whole: torch.Tensor, param: torch.nn.Parameter) -> torch.Tensor:
    """The part of a whole tensor that the rank's parameter holds."""
    return whole[param.spec.box.inside(Box.whole(param.spec.global_shape))]


def fill(param: torch.nn.Parameter, seed: int) -> torch.Tensor:
    """Give a parameter random values that are a part of one whole tensor; return the whole as a leaf of its own."""
    whole = random(*param.spec.global_shape, seed=seed)
    param.data.copy_(own(whole, param))
    return whole.requires_grad_()


def sequence_part(x: torch.Tensor, ctx: LayerContext) -> torch.Tensor:
    """The part of dim 0 that the rank works on under sequence parallelism, else all of it."""
    return x.chunk(ctx.tp.size)[ctx.tp.rank] if ctx.sequence_parallel else x


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected.detach(), rtol=1e-12, atol=1e-12)


def every_case(rank: int, world_size: int, check, *choices) -> list:
    """Call ``check(rank, world_size, *case)`` for each combination of choices: many cases in one world. On failure the
    case stands in the message."""
    results = []
    for case in product(*choices):
        try:
            results.append(check(rank, world_size, *case))
        except Exception as error:
            raise AssertionError(f"{check.__name__}{case} of {world_size}: {error}") from error
    return results


def assert_gradient(function, x: torch.Tensor, step: float = 1e-6) -> None:
    """Compare the gradient at ``x`` (float64) of a scalar function with central differences."""
    x = x.detach().clone().requires_grad_()
    function(x).backward()
    for index in range(x.numel()):
        moved = [x.detach().clone() for _ in range(2)]
        moved[0].view(-1)[index] += step
        moved[1].view(-1)[index] -= step
        difference = (function(moved[0]) - function(moved[1])) / (2 * step)
        torch.testing.assert_close(x.grad.view(-1)[index], difference.detach(), rtol=1e-6, atol=1e-7)
