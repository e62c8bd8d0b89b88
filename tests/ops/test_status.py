import subprocess
import sys

from megalite.ops import matmul
from megalite.ops.status import Status, collect, table


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
    assert Status("fp32 matrix products (CPU)", *matmul.library()) in collect()


def test_columns_line_up():
    lines = table([Status("a", "long one", "x"), Status("longer", "b", "y")]).splitlines()
    assert lines == ["op      active    reason", "a       long one  x", "longer  b         y"]
