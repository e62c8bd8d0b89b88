"""Finding the compiled kernels of an op, and calling them by raw pointers.

An op's file names the kernels that it needs (``KERNELS``), holds the reference in plain torch that says what the op
computes, and takes the kernels where :func:`find` has them: ``megalite._native`` for tensors on the CPU,
``megalite._cuda`` on a GPU, by the same names and with the same arguments.
"""

from types import ModuleType
from typing import Any

import torch

from megalite.native import cuda, native

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The element types that kernels take, by their codes in csrc/dtype.h. Kernels compute in float32."""


class Kernels:
    """The kernels of one module, launched on one device."""

    def __init__(self, module: ModuleType, device: torch.device):
        self._module, self._device = module, device

    def __call__(self, name: str, *args: Any) -> None:
        """Run kernel ``name``: tensors are passed as addresses (None as 0), dtypes as codes, numbers as they are."""
        kernel, values = getattr(self._module, name), [_plain(value) for value in args]
        if self._device.type == "cuda":
            with torch.cuda.device(self._device):
                kernel(*values, torch.cuda.current_stream().cuda_stream)
        else:
            kernel(*values)

    def blocks(self, rows: int) -> int:
        """Into how many blocks ``rows`` are cut whose sums become a parameter's gradient.

        A function of the shape alone, so that the sum's rounding does not depend on the number of threads.
        """
        return max(1, min(rows, self._module.ROW_BLOCKS))


def find(names: tuple[str, ...], *tensors: torch.Tensor | None, fused: bool = True) -> Kernels | None:
    """The kernels ``names`` for ``tensors`` (those that are not None), or None where the reference is to be used.

    There are some where their module is built and switched on, and the tensors share one device and one dtype of
    :data:`DTYPES`; ``fused=False`` asks for the reference.
    """
    if not fused:
        return None
    given = [tensor for tensor in tensors if tensor is not None]
    device, dtype = given[0].device, given[0].dtype
    if dtype not in DTYPES or any(tensor.dtype != dtype or tensor.device != device for tensor in given):
        return None
    module = module_for(device.type)
    if module is None or not all(hasattr(module, name) for name in names):
        return None
    return Kernels(module, device)


def module_for(device_type: str) -> ModuleType | None:
    """The module that holds the kernels for ``cpu`` or ``cuda`` tensors, if there is one."""
    if device_type == "cuda":
        return cuda()
    module = native() if device_type == "cpu" else None
    return module and module.cpu


def wide(x: torch.Tensor) -> torch.Tensor:
    """``x`` in the precision in which references compute: float32 for 16-bit types, else its own."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        assert value.is_contiguous(), (
            f"kernels take contiguous tensors; given strides {value.stride()} of shape {tuple(value.shape)}"
        )
        return value.data_ptr()
    if isinstance(value, torch.dtype):
        return DTYPES[value]
    return 0 if value is None else value
