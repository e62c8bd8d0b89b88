import subprocess
import sys
from types import SimpleNamespace

from megalite.ops import matmul, status
from megalite.ops.status import Status, collect, registered, table


def run(**environment):
    return subprocess.run(
        [sys.executable, "-m", "megalite.ops.status"], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_the_command_shows_what_is_active_and_why():
    lines = run(MEGALITE_NATIVE="0", MEGALITE_MATMUL="torch")
    assert lines[0].split() == ["op", "active", "reason"]
    assert len(lines) == 1 + len(collect())
    assert any("torch" in line and "MEGALITE_MATMUL=torch" in line for line in lines)
    assert any("python" in line and "switched off by MEGALITE_NATIVE=0" in line for line in lines)


def test_the_library_in_use_is_the_one_shown():
    choice = matmul.choice()
    assert Status("fp32 products (CPU)", choice.products, choice.reason) in collect()
    assert Status("fp32 weight gradients (CPU)", choice.weight_grads, choice.reason) in collect()


def test_every_op_with_kernels_is_listed(native_module):
    rows = {row.op: row for row in collect()}
    assert {"rms_norm", "softmax", "linear_cross_entropy", "adamw", "philox"} <= set(registered()) <= set(rows)
    assert all(rows[op].active == "native" and "float32" in rows[op].reason for op in registered())


def test_a_module_without_the_kernels_is_explained(monkeypatch):
    monkeypatch.setattr(status, "module_for", lambda device_type: SimpleNamespace(rotary=None, ISA="generic"))
    rows = {row.op: row for row in collect()}
    assert rows["rotary"].active == "native"
    assert rows["rms_norm"].active == "torch" and "lacks rms_norm_forward, rms_norm_backward" in rows["rms_norm"].reason


def test_the_gpu_is_listed():
    (line,) = (line for line in run(MEGALITE_CUDA="0") if line.startswith("the same on a GPU"))
    assert line.split()[5] == "torch" and line.endswith("switched off by MEGALITE_CUDA=0")


def test_the_allocator_is_listed(native_module):
    assert any(line.split()[:2] == ["allocator", "tuned"] for line in run())
    assert any(line.split()[:2] == ["allocator", "default"] for line in run(MEGALITE_MALLOC="0"))
    assert any(line.split()[:2] == ["allocator", "default"] for line in run(MEGALITE_NATIVE="0"))


def test_columns_line_up():
    lines = table([Status("a", "long one", "x"), Status("longer", "b", "y")]).splitlines()
    assert lines == ["op      active    reason", "a       long one  x", "longer  b         y"]
