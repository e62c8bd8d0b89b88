import subprocess
import sys

import pytest
import torch

from megalite.ops.kernels import Kernels, find

pytestmark = pytest.mark.usefixtures("native_module")

KERNELS = ("rms_norm_forward",)


def test_found_for_tensors_of_one_native_dtype():
    x = torch.ones(2)
    assert isinstance(find(KERNELS, x, None, x), Kernels)
    assert find(KERNELS, x.double()) is None and find(KERNELS, x, x.bfloat16()) is None
    assert find(("no_such_kernel",), x) is None


def test_not_found_where_the_module_is_switched_off(monkeypatch):
    monkeypatch.setenv("MEGALITE_NATIVE", "0")
    assert find(KERNELS, torch.ones(2)) is None


def test_a_strided_tensor_is_refused():
    kernels = find(KERNELS, torch.ones(2))
    with pytest.raises(
        AssertionError, match=r"kernels take contiguous tensors; given strides \(1, 2\) of shape \(2, 2\)"
    ):
        kernels("rms_norm_forward", torch.ones(2, 2).t())


def test_blocks_depend_on_the_shape_alone(native_module):
    kernels = find(KERNELS, torch.ones(2))
    assert [kernels.blocks(rows) for rows in (0, 1, 5, 10_000)] == [1, 1, 5, native_module.cpu.ROW_BLOCKS]


def in_new_process(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_shares_the_openmp_pool_of_torch():
    """One runtime is mapped, so that the threads are torch's and torch.set_num_threads holds for the kernels."""
    code = (
        "import torch, megalite.native as n; n.native(); maps = open('/proc/self/maps').read();"
        "print(len({line.split()[-1] for line in maps.splitlines() if 'omp' in line.split()[-1].split('/')[-1]}))"
    )
    assert in_new_process(code) == "1"


def test_the_allocator_is_tuned_unless_switched_off():
    code = "import megalite.native as n; print(n.native().MALLOC_TUNED)"
    assert in_new_process(code) == "True" and in_new_process(code, MEGALITE_MALLOC="0") == "False"


def test_a_tuned_allocator_keeps_freed_memory():
    """Once warm, the pages of large tensors are not faulted in anew for every tensor."""
    code = (
        "import torch, resource, megalite.native as n; n.native()\n"
        "def make(count):\n    for _ in range(count): torch.ones(2**23)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "before = make(20); print(make(10) - before)"
    )
    assert int(in_new_process(code)) < 10 * 2**13 <= int(in_new_process(code, MEGALITE_MALLOC="0"))
