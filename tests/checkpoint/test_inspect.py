import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from megalite.checkpoint import inspect
from megalite.errors import CheckpointError
from tests.checkpoint.states import manager_of, state

TOOL = Path(__file__).parents[2] / "tools" / "checkpoint_inspect.py"


def save(directory, iteration, pieces, checksums=True):
    manager = manager_of(directory, verify_integrity=checksums)
    stream = {"corpora": [{"name": "data/a", "consumed": 30}], "left": [{"name": "data/b", "consumed": 10}]}
    meta = {"consumed_samples": 40, "loss_scaler": {"scale": 2.0}, "data_stream": stream}
    manager.save(iteration, pieces, meta, "seed: 1\n")
    manager.close()


def test_the_listing(tmp_path, capsys):
    save(tmp_path, 5, state(0))
    assert inspect.main([str(tmp_path), "--norms", "--config", "--verify"]) == 0
    # The sum of squares of 0 to 23 is 23 x 24 x 47 / 6 = 4324, whose root is 65.7571.
    assert capsys.readouterr().out == f"""3 files hold what was written
{tmp_path}/iter_0000005: iteration 5, 1 shards
consumed_samples 40
loss_scaler {{"scale": 2.0}}
consumed 30 samples of data/a
consumed 10 samples of data/b

tensor  dtype     shape   parts  norm
count   int64     scalar  1      0
norm    bfloat16  5       1      0
w       float32   6 x 4   1      65.7571

parameters: 30 elements
optimizer state: 0 elements

configuration
seed: 1
"""


def test_differences(tmp_path, capsys):
    save(tmp_path / "a", 1, state(1))
    save(tmp_path / "b", 1, state(1))
    both = [str(tmp_path / "a"), "--diff", str(tmp_path / "b")]
    assert inspect.main(both) == 0
    assert capsys.readouterr().out == "3 tensors are equal, bit for bit\n"
    weight, norm, _ = state(1)
    weight.tensor[0, 0] += 3
    weight.tensor[0, 1] -= 4
    save(tmp_path / "b", 2, [weight, norm.rows(0, 5)])
    assert inspect.main(both) == 1
    assert capsys.readouterr().out == (
        f"only in {tmp_path}/a/iter_0000001: count\n"
        f"w: largest difference 4; norms {torch.norm(state(1)[0].tensor):.6g}, {torch.norm(weight.tensor):.6g}, "
        "of the difference 5\n"
    )


def test_a_tensor_of_another_kind_and_a_sign_of_zero_are_differences(tmp_path, capsys):
    zero = state(0)[:1]
    zero[0].tensor.zero_()
    save(tmp_path / "a", 1, zero)
    zero[0].tensor.neg_()
    save(tmp_path / "b", 1, zero)
    assert inspect.main([str(tmp_path / "a"), "--diff", str(tmp_path / "b")]) == 1
    assert "w: largest difference 0;" in capsys.readouterr().out
    save(tmp_path / "b", 2, [replace(zero[0], tensor=zero[0].tensor.half())])
    assert inspect.main([str(tmp_path / "a"), "--diff", str(tmp_path / "b")]) == 1
    assert capsys.readouterr().out == "w: ('float32', (6, 4)) and ('float16', (6, 4))\n"


def test_a_corrupt_file_is_named(tmp_path):
    save(tmp_path, 5, state(5))
    path = tmp_path / "iter_0000005" / "shard_00000.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match="is damaged: the checksums of shard_00000.safetensors differ"):
        inspect.main([str(tmp_path), "--verify"])
    save(tmp_path, 6, state(6), checksums=False)
    with pytest.raises(CheckpointError, match="must have been saved with checksums to be verified"):
        inspect.main([str(tmp_path), "--verify"])


def test_the_program(tmp_path):
    save(tmp_path, 5, state(5))
    (tmp_path / "iter_0000009").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("9")
    environment = {**os.environ, "PYTHONPATH": str(TOOL.parents[1])}
    run = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True, env=environment)
    assert run.returncode == 0 and "iteration 5, 1 shards" in run.stdout
    assert "skipped iteration 9" in run.stdout + run.stderr
