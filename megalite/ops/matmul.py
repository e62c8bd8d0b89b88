"""The three matrix products of a linear layer: forward, input gradient, weight gradient.

Results are tensors of their own, never views, so that a caller may write into them.
"""

import torch


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias``: [..., in] to [..., out], weight [out, in]."""
    y = x.new_empty(*x.shape[:-1], weight.shape[0])
    rows, out = x.flatten(0, -2), y.view(-1, weight.shape[0])
    if bias is None:
        torch.mm(rows, weight.t(), out=out)
    else:
        torch.addmm(bias, rows, weight.t(), out=out)
    return y


def input_grad(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Gradient of :func:`linear` with respect to ``x``: ``grad @ weight``, [..., out] to [..., in]."""
    x_grad = grad.new_empty(*grad.shape[:-1], weight.shape[1])
    torch.mm(grad.flatten(0, -2), weight, out=x_grad.view(-1, weight.shape[1]))
    return x_grad


def add_weight_grad(total: torch.Tensor, grad: torch.Tensor, x: torch.Tensor) -> None:
    """Add the gradient with respect to ``weight``, ``grad.T @ x`` over all leading dims, to ``total`` [out, in] in place.

    ``total`` may be of a wider dtype than the operands, whose product is then rounded once before it is added.
    """
    grad, x = grad.flatten(0, -2), x.flatten(0, -2)
    if total.dtype == grad.dtype:
        total.addmm_(grad.t(), x)
    else:
        total.add_(grad.t() @ x)


def add_bias_grad(total: torch.Tensor, grad: torch.Tensor) -> None:
    """Add the gradient with respect to ``bias``, ``grad`` summed over all leading dims, to ``total`` [out] in place."""
    total.add_(grad.flatten(0, -2).sum(0, dtype=total.dtype))
