"""What docs/checkpoint-format.md says of the format, held against a checkpoint with the tensor of its example."""

import json
import re
from pathlib import Path

import torch

from megalite.state import Box
from tests.checkpoint.cuts import cut, filled
from tests.checkpoint.states import manager_of, world_group
from tests.harness import run_world

DOCUMENT = (Path(__file__).parents[2] / "docs" / "checkpoint-format.md").read_text(encoding="utf-8")
NAME = "layers.0.mlp.down.weight"
WEIGHT = filled((16, 8))


def code_blocks():
    """The indented blocks of the page, without their indentation."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", DOCUMENT, re.MULTILINE)
    return ["\n".join(line[4:] for line in block.splitlines()) for block in found]


def save_columns(rank, world_size, save):
    box = Box((0, 4 * rank), (16, 4))
    manager = manager_of(save, world_group(rank, world_size))
    manager.save(1000, cut(NAME, WEIGHT, [box]), {}, "seed: 1\n")


def test_the_index_is_as_the_example_has_it(tmp_path):
    run_world(save_columns, 2, tmp_path)
    written = json.loads((tmp_path / "iter_0001000" / "index.json").read_text())
    (block,) = (block for block in code_blocks() if '"format"' in block)
    example = json.loads(block.replace("},\n...", "}"))
    assert written["tensors"] == example["tensors"]
    assert {**written, "files": None, "tensors": None} == {**example, "files": None, "tensors": None}
    assert {name: sorted(entry) for name, entry in written["files"].items()} == {
        name: sorted(entry) for name, entry in example["files"].items()
    }


def test_the_python_example_runs(tmp_path):
    run_world(save_columns, 2, tmp_path)
    (example,) = (block for block in code_blocks() if "find_checkpoint" in block)
    scope = {"torch": torch}
    exec(example.replace("runs/a", str(tmp_path)), scope)
    assert torch.equal(scope["weight"], WEIGHT) and torch.equal(scope["rows"], WEIGHT[8:12])
