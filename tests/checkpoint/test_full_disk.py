"""A disk that is really full: a file system of one megabyte, into which the second save does not fit."""

import shutil
import subprocess
import sys

import pytest
import torch

from megalite.checkpoint.directory import TRACKER, list_iterations
from megalite.checkpoint.lock import LOCK
from megalite.checkpoint.piece import Piece
from megalite.errors import CheckpointError
from megalite.state import Box
from tests.checkpoint.states import load_and_check, manager_of, state
from tests.e2e.launch import ROOT

IN_ITS_OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
MOUNTED = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'


def fill(save, async_save):
    """Save, fill the disk, fail, and save again; runs where ``save`` is the small file system."""
    big = Piece("big", (1 << 19,), Box.whole((1 << 19,)), torch.zeros(1 << 19))
    manager = manager_of(save, async_save=async_save)
    meta = {"consumed_samples": 8}
    manager.save(1, state(1), meta, "")
    manager.wait()
    with pytest.raises(CheckpointError, match="iteration 2 could not be written to --save .* No space left on device"):
        manager.save(2, [*state(2), big], meta, "")
        manager.wait()
    assert sorted(path.name for path in save.iterdir()) == [LOCK, "iter_0000001", TRACKER]
    load_and_check(save, 1)
    manager.save(3, state(3), {"consumed_samples": 24}, "")
    manager.close()
    load_and_check(save, 3)
    assert list_iterations(save) == [1, 3]


@pytest.mark.parametrize("async_save", [False, True])
def test_a_disk_without_room(tmp_path, async_save):
    if shutil.which("unshare") is None or subprocess.run([*IN_ITS_OWN_MOUNTS, MOUNTED, tmp_path, "true"]).returncode:
        pytest.skip("this system lets nobody but root mount a file system")
    imports = "from pathlib import Path; from tests.checkpoint.test_full_disk import fill"
    code = f"{imports}; fill(Path({str(tmp_path)!r}), {async_save})"
    command = [*IN_ITS_OWN_MOUNTS, MOUNTED, tmp_path, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
