"""The yardstick of every op: its error against float64 is within twice that of plain torch in the same precision."""

from typing import Callable, Sequence

import torch

Outputs = list[torch.Tensor]
Function = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


def run(function: Function, inputs: Sequence[torch.Tensor], seed: int = 7) -> Outputs:
    """Outputs of ``function`` and the gradients of its floating inputs, for fixed random gradients of the outputs."""
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    results = function(*leaves)
    outputs = [results] if isinstance(results, torch.Tensor) else list(results)
    generator = torch.Generator().manual_seed(seed)
    grads = [
        torch.randn(y.shape, generator=generator, dtype=torch.float64).to(inputs[0].dtype).to(y) for y in outputs
    ]
    learned = [x for x in leaves if x.requires_grad]
    return [y.detach() for y in outputs] + list(torch.autograd.grad(outputs, learned, grads))


def check(op: Function, plain: Function, inputs: Sequence[torch.Tensor]) -> None:
    """Compare ``op`` with ``plain``, the same function in plain differentiable torch."""
    truth = run(plain, [x.double() if x.is_floating_point() else x for x in inputs])
    yardstick, actual = run(plain, inputs), run(op, inputs)
    assert len(truth) == len(actual)
    for number, (exact, other, ours) in enumerate(zip(truth, yardstick, actual)):
        assert ours.shape == exact.shape and ours.dtype == other.dtype, f"result {number}: {ours.shape} {ours.dtype}"
        if not exact.numel():
            continue
        # Among few values plain torch may happen to be exact: some units in the last place of the largest are allowed.
        units = (1 if exact.numel() >= 100 else 8) * torch.finfo(ours.dtype).eps * exact.abs().max()
        allowed = 2 * (other.double() - exact).abs().max() + units
        error = (ours.double() - exact).abs().max()
        assert error <= allowed, f"result {number}: error {error:.3e}, allowed {allowed:.3e}"


def randn(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Normal numbers that are the same for every dtype but for rounding."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
