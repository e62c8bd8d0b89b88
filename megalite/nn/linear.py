"""Linear layers whose matrix is split over the tensor-parallel ranks (Shoeybi et al. 2019).

Activations are [sequence, batch, features]. Column-parallel splits the output features, row-parallel the input
features; one after the other needs one reduction. Under sequence parallelism (Korthikanti et al. 2022) the activations
outside such a pair hold a part of the sequence: the column layer gathers its input, the row layer reduce-scatters its
output.

The backward passes start their communication first and compute the weight gradient while it is under way.
"""

import math
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import nn

from megalite.config import ModelConfig
from megalite.nn.context import LayerContext
from megalite.nn.parameter import make_parameter, shard_box
from megalite.nn.wgrad import Closure, accumulate
from megalite.ops import matmul
from megalite.parallel.collectives import (
    all_gather,
    all_reduce,
    reduce_scatter,
    start_all_gather,
    start_all_reduce,
    start_reduce_scatter,
)
from megalite.parallel.regions import gather_from_tp, scatter_to_tp
from megalite.state import Box, Init, ParamSpec


@dataclass(frozen=True)
class LinearOptions:
    """What users of tensor-parallel linear layers expect to choose."""

    bias: bool = True
    std: float = 0.02
    """Standard deviation of the initial weights."""
    gather_output: bool = False
    """Column-parallel: return all output features on every rank."""
    input_is_parallel: bool = True
    """Row-parallel: the input holds this rank's features only."""
    skip_bias_add: bool = False
    """Return (output without bias, bias), for a caller that adds the bias in an operation of its own."""


@dataclass(frozen=True)
class Rebuilt:
    """An input that is not kept for the backward pass: it is cheap to compute once more, from tensors that are kept.

    ``function(*tensors)`` gives the input, bit for bit.
    """

    function: Callable[..., torch.Tensor]
    tensors: tuple[torch.Tensor | None, ...]


def residual_options(model: ModelConfig) -> LinearOptions:
    """Of a projection back into the residual stream: smaller initial weights the more of them add up (GPT-2)."""
    return LinearOptions(bias=model.linear_bias, std=model.init_method_std / (2 * model.num_layers) ** 0.5)


class ColumnParallelLinear(nn.Module):
    """y = x W^T + b, of which each rank computes its part of the output features.

    ``out_shape`` is the output width, or several dims that make it up, of which ``shard_dim`` is split; the weight has
    shape (*out_shape, in_features), so that each shard is one box of it. Input [s, b, in_features] (s / tp under
    sequence parallelism); output [s, b, prod(out_shape) / tp].
    """

    def __init__(
        self,
        name: str,
        in_features: int,
        out_shape: int | tuple[int, ...],
        ctx: LayerContext,
        options: LinearOptions = LinearOptions(),
        shard_dim: int = 0,
    ):
        super().__init__()
        out_shape = (out_shape,) if isinstance(out_shape, int) else out_shape
        assert not options.gather_output or shard_dim == 0, f"{name}: gathered features would not be in order"
        self.ctx, self.options = ctx, options
        self.weight = _weight(name, (*out_shape, in_features), shard_dim, ctx, options.std)
        self.bias = None
        if options.bias:
            box = shard_box(out_shape, shard_dim, ctx.tp)
            self.bias = make_parameter(ParamSpec(f"{name}.bias", out_shape, box, Init("zeros"), decay=False), ctx)

    def forward(
        self, x: torch.Tensor, rebuilt: Rebuilt | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, nn.Parameter | None]:
        """The output, or (output, bias) under ``skip_bias_add``; ``rebuilt`` may tell how to have ``x`` again."""
        skip = self.options.skip_bias_add
        y = _ColumnParallel.apply(x, self.weight, None if skip else self.bias, self.ctx, rebuilt)
        if self.options.gather_output:
            y = gather_from_tp(y, self.ctx.tp)
        return (y, self.bias) if skip else y


class RowParallelLinear(nn.Module):
    """y = x W^T + b, where each rank holds its part of the input features; the partial products are summed.

    Input [s, b, in_features / tp] (in_features unless ``input_is_parallel``); output [s, b, out_features] (s / tp under
    sequence parallelism). The bias is whole on every rank and is added once, after the sum.
    """

    def __init__(
        self,
        name: str,
        in_features: int,
        out_features: int,
        ctx: LayerContext,
        options: LinearOptions = LinearOptions(),
    ):
        super().__init__()
        assert options.input_is_parallel or not ctx.sequence_axes, (
            f"{name}: sequence parallelism needs a parallel input"
        )
        self.ctx, self.options = ctx, options
        self.weight = _weight(name, (out_features, in_features), 1, ctx, options.std)
        self.bias = None
        if options.bias:
            shape = (out_features,)
            spec = ParamSpec(
                f"{name}.bias", shape, Box.whole(shape), Init("zeros"), decay=False, reduce_axes=ctx.sequence_axes
            )
            self.bias = make_parameter(spec, ctx)

    def forward(
        self, x: torch.Tensor, rebuilt: Rebuilt | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, nn.Parameter | None]:
        """The output, or (output, bias) under ``skip_bias_add``; ``rebuilt`` may tell how to have ``x`` again."""
        assert rebuilt is None or self.options.input_is_parallel, "what is rebuilt must be this rank's features"
        if not self.options.input_is_parallel:
            x = scatter_to_tp(x, self.ctx.tp)
        skip = self.options.skip_bias_add
        y = _RowParallel.apply(x, self.weight, None if skip else self.bias, self.ctx, rebuilt)
        return (y, self.bias) if skip else y


def column_parallel(
    x: torch.Tensor, weight: nn.Parameter, bias: nn.Parameter | None, ctx: LayerContext
) -> torch.Tensor:
    """The product of :class:`ColumnParallelLinear` with a weight held elsewhere, such as a tied embedding."""
    return _ColumnParallel.apply(x, weight, bias, ctx, None)


def _weight(name: str, shape: tuple[int, ...], shard_dim: int, ctx: LayerContext, std: float) -> nn.Parameter:
    spec = ParamSpec(f"{name}.weight", shape, shard_box(shape, shard_dim, ctx.tp), Init("normal", std), decay=True)
    return make_parameter(spec, ctx)


def _matrix(weight: torch.Tensor) -> torch.Tensor:
    """A weight of any number of dims as [out, in]."""
    return weight.view(math.prod(weight.shape[:-1]), weight.shape[-1])


class _ColumnParallel(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        layer: LayerContext,
        rebuilt: Rebuilt | None,
    ) -> torch.Tensor:
        _keep_input(ctx, x, rebuilt)
        ctx.weight, ctx.bias, ctx.layer = weight, bias, layer
        whole = all_gather(x, layer.tp) if layer.sequence_parallel else x
        return matmul.linear(whole, _matrix(weight), None if bias is None else bias.view(-1))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        x, layer = _kept_input(ctx), ctx.layer
        if layer.sequence_parallel:
            x, gathered = start_all_gather(x, layer.tp)
            input_grad = matmul.input_grad(grad, _matrix(ctx.weight))
            gathered.wait()
            input_grad, reduced = start_reduce_scatter(input_grad, layer.tp)
        else:
            input_grad = matmul.input_grad(grad, _matrix(ctx.weight))
            reduced = start_all_reduce(input_grad, layer.tp)
        layer.wgrad.submit(_weight_grad(ctx.weight, grad, x, ctx.bias, grad, layer))
        reduced.wait()
        return input_grad, None, None, None, None


class _RowParallel(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        layer: LayerContext,
        rebuilt: Rebuilt | None,
    ) -> torch.Tensor:
        _keep_input(ctx, x, rebuilt)
        ctx.weight, ctx.bias, ctx.layer = weight, bias, layer
        if layer.tp.size == 1:
            return matmul.linear(x, weight, bias)
        partial = matmul.linear(x, weight)
        y = reduce_scatter(partial, layer.tp) if layer.sequence_parallel else all_reduce(partial, layer.tp)
        return y if bias is None else y.add_(bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        x, layer = _kept_input(ctx), ctx.layer
        whole = all_gather(grad, layer.tp) if layer.sequence_parallel else grad
        input_grad = matmul.input_grad(whole, ctx.weight)
        layer.wgrad.submit(_weight_grad(ctx.weight, whole, x, ctx.bias, grad, layer))
        return input_grad, None, None, None, None


def _keep_input(ctx: Any, x: torch.Tensor, rebuilt: Rebuilt | None) -> None:
    ctx.rebuild = None if rebuilt is None else rebuilt.function
    kept = (x,) if rebuilt is None else rebuilt.tensors
    ctx.save_for_backward(*(tensor if tensor is None else tensor.detach() for tensor in kept))


@torch.no_grad()
def _kept_input(ctx: Any) -> torch.Tensor:
    return ctx.saved_tensors[0] if ctx.rebuild is None else ctx.rebuild(*ctx.saved_tensors)


def _weight_grad(
    weight: nn.Parameter,
    grad: torch.Tensor,
    x: torch.Tensor,
    bias: nn.Parameter | None,
    bias_grad: torch.Tensor,
    layer: LayerContext,
) -> Closure:
    def run() -> None:
        fused = layer.fusions.gradient_accumulation
        accumulate(weight, lambda total: matmul.add_weight_grad(_matrix(total), grad, x, fused))
        if bias is not None:
            accumulate(bias, lambda total: matmul.add_bias_grad(total.view(-1), bias_grad))

    return run
