"""Adafactor: second moments of a matrix kept as row and column sums (Shazeer and Stern 2018, Algorithms 4 and 5).

A parameter of more than two dims is a matrix of all its dims but the last, by the last. Step sizes are relative to the
parameter's own scale: ``lr * max(eps_scale, RMS(param))``. The paper's own schedule, min(0.01, 1/sqrt(t)), is
``--lr 0.01 --lr-warmup-init 0.01 --lr-warmup-iters 10000 --lr-decay-style inverse-square-root``. Weight decay is
decoupled.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Iterator, NamedTuple

import torch

from megalite.config import OptimizerConfig
from megalite.ops.norm import sum_of_squares
from megalite.optim.rule import Step, Sums, TensorPart
from megalite.state import Box, ParamSpec, flat_range_to_boxes


class _Block(NamedTuple):
    """Consecutive elements of a local matrix that form a rectangle."""

    rows: slice
    columns: slice
    values: torch.Tensor


@dataclass(frozen=True)
class Rule:
    """The constants are the paper's."""

    eps_square: float = 1e-30
    """Added to squared gradients."""
    eps_scale: float = 1e-3
    """Smallest scale of a parameter."""
    clip_threshold: float = 1.0
    """Largest root mean square of an update, before the step size."""
    decay_exponent: float = 0.8
    """Second moments decay by 1 - t ** -decay_exponent."""
    granularity: ClassVar = "tensor"

    @classmethod
    def from_config(cls, config: OptimizerConfig) -> "Rule":
        return cls()

    def slots(self, spec: ParamSpec) -> tuple[str, ...]:
        return () if _is_matrix(spec) else ("exp_avg_sq",)

    def factors(self, spec: ParamSpec) -> dict[str, tuple[int, ...]]:
        return {"row": spec.global_shape[:-1], "column": spec.global_shape[-1:]} if _is_matrix(spec) else {}

    def update(self, part: TensorPart, step: Step) -> Sums:
        beta = 1.0 - step.number**-self.decay_exponent
        numel = math.prod(part.spec.global_shape)
        part.grad.mul_(step.grad_factor)
        square = sum_of_squares(part.param[part.share]).view(1)
        if _is_matrix(part.spec):
            sums = yield torch.cat([square, *self._partial_sums(part)])
            self._scale_by_factors(part, sums[1:].to(part.param.dtype), beta)
        else:
            sums = yield square
            self._scale_by_elements(part, beta)
        scale = (sums[0] / numel).sqrt().clamp_(min=self.eps_scale)
        update_square = yield sum_of_squares(part.grad[part.share]).view(1)
        clip = ((update_square / numel).sqrt() / self.clip_threshold).clamp_(min=1.0)
        part.param.mul_(1.0 - step.lr * step.weight_decay)
        part.param.sub_(part.grad.mul_((step.lr * scale / clip).to(part.grad.dtype)))

    def _partial_sums(self, part: TensorPart) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of squared gradients of this rank's share over the rows and the columns of the whole matrix."""
        spec = part.spec
        rows, columns = part.param.new_zeros(spec.global_shape[:-1]), part.param.new_zeros(spec.global_shape[-1])
        inside = spec.box.inside(Box.whole(spec.global_shape))
        local_rows = rows.new_zeros(math.prod(spec.box.extent[:-1]))
        for block in _blocks(part, part.share):
            squares = block.values.square().add_(self.eps_square)
            local_rows[block.rows] += squares.sum(1)
            columns[inside[-1]][block.columns] += squares.sum(0)
        rows[inside[:-1]] = local_rows.view(spec.box.extent[:-1])
        return rows.view(-1), columns

    def _scale_by_factors(self, part: TensorPart, sums: torch.Tensor, beta: float) -> None:
        """Divide the gradient by the root of its factored second moment."""
        row, column = part.state["row"], part.state["column"]
        row_sums, column_sums = sums.split([row.numel(), column.numel()])
        row.mul_(beta).add_(row_sums.view_as(row), alpha=1.0 - beta)
        column.mul_(beta).add_(column_sums, alpha=1.0 - beta)
        inside = part.spec.box.inside(Box.whole(part.spec.global_shape))
        local_row, local_column = (row / row.sum())[inside[:-1]].reshape(-1), column[inside[-1]]
        for block in _blocks(part, slice(0, part.grad.numel())):
            moment = torch.outer(local_row[block.rows], local_column[block.columns])
            block.values.div_(moment.sqrt_())

    def _scale_by_elements(self, part: TensorPart, beta: float) -> None:
        moment = part.state["exp_avg_sq"]
        moment.mul_(beta).add_(part.grad.square().add_(self.eps_square), alpha=1.0 - beta)
        part.grad.div_(moment.sqrt())


def _is_matrix(spec: ParamSpec) -> bool:
    return len(spec.global_shape) > 1


def _blocks(part: TensorPart, elements: slice) -> Iterator[_Block]:
    """The gradient of ``elements`` of the part as rectangles of the local matrix: at most three."""
    extent = (math.prod(part.spec.box.extent[:-1]), part.spec.box.extent[-1])
    start, stop = part.start + elements.start, part.start + elements.stop
    for box, position in flat_range_to_boxes(extent, start, stop):
        values = part.grad[elements][position : position + box.numel].view(box.extent)
        rows, columns = (slice(at, at + length) for at, length in zip(box.offset, box.extent))
        yield _Block(rows, columns, values)
