import subprocess
import sys
import weakref

import torch

from megalite.pipeline.backward import Backward

ONE_STEP = """
import sys
from tests.train.test_fusions import step
step({})
print(*{name.split(".")[0] for name in sys.modules})
"""


def test_gradients_are_those_of_autograd_for_given_output_gradients():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    grads = {"square": torch.tensor([1.0, 10.0, 100.0]).double(), "sum": torch.tensor(5.0).double()}
    Backward({"square": x * x, "sum": x.sum()}).run(dict(grads))
    assert x.grad.tolist() == [2 * 1 + 5, 2 * 20 + 5, 2 * 300 + 5]


def test_neither_outputs_nor_their_gradients_are_kept():
    alive = []

    class Watch(torch.autograd.Function):
        """Tells in the backward pass of its input what is alive of its output and of that one's gradient."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            alive.append([reference() is not None for reference in references])
            return grad * 1

    x = torch.ones(4, requires_grad=True)
    output, grad = 2 * Watch.apply(x), torch.ones(4)
    references = [weakref.ref(output), weakref.ref(grad)]
    backward, grads = Backward({"y": output}), {"y": grad}
    del output, grad
    backward.run(grads)
    assert alive == [[False, False]] and not grads


def test_a_training_step_imports_no_symbolic_mathematics():
    """45 MiB and half a second of every process."""
    packages = subprocess.run(
        [sys.executable, "-c", ONE_STEP], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "megalite" in packages and "sympy" not in packages
