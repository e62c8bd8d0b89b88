"""The examples of docs/data-format.md, held against the code."""

import re
from pathlib import Path

import numpy as np

from megalite.data.datasets.gpt import SampleRules, assemble
from megalite.data.index_builders import build_blend
from megalite.data.indexed import IndexedDataset
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.packing import build_indices, plan_packing

TEXT = (Path(__file__).parent.parent.parent / "docs" / "data-format.md").read_text()


def numbers_after(label):
    return re.search(rf"{label}\s+([0-9E ]+)", TEXT).group(1).split()


def test_bytes_of_a_corpus(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "c", "uint16") as builder:
        builder.add_document([5, 6, 7, 8, 9], [3, 2])
        builder.add_document([], [])
        builder.add_document([1, 2, 3, 4], [4])
        builder.finalize()
    for suffix in ("bin", "idx"):
        shown = re.search(rf"^    \.{suffix}  ((?:[0-9a-f\s])+)\n\n", TEXT, re.MULTILINE).group(1)
        assert "".join(shown.split()) == (tmp_path / f"c.{suffix}").read_bytes().hex()


def test_the_python_example(tmp_path):
    code = re.search(r"From Python:\n\n((?:(?:    .*)?\n)+)", TEXT).group(1).replace("\n    ", "\n").strip()
    code = code.replace("data/mine", str(tmp_path / "mine"))
    exec(compile(code, "docs/data-format.md", "exec"), {})
    assert [sequence.tolist() for sequence in IndexedDataset(tmp_path / "mine")] == [[5, 6, 7], [8, 9]]


def test_the_worked_samples():
    lengths = np.array([5, 3, 9, 1, 12, 4], np.int32)
    packing = plan_packing(34, 4, 10)
    assert (packing.samples_in(1), packing.num_epochs, packing.num_samples) == (8, 2, 16)
    assert packing.separate_final_epoch
    indices = build_indices(lengths, 0, 6, packing, 1234)
    shown = re.findall(r"`((?:\d+ )+\|(?: \d+)+)`", TEXT)
    assert [text.replace("| ", "").split() for text in shown] == [
        [str(number) for number in indices[name].tolist()] for name in ("document_index", "shuffle_index")
    ]
    assert indices["sample_index"][:3].tolist() == [[0, 0], [0, 4], [0, 8]]


def test_the_end_of_a_document():
    ids = [99 if token == "E" else int(token) for token in numbers_after("    tokens")]
    sample = assemble(np.array([*ids, 1]), SampleRules(9, 99, True, True, True))
    assert [str(number) for number in sample["position_ids"]] == numbers_after("position ids")
    assert [str(number) for number in sample["document_ids"]] == numbers_after("    document")
    assert [str(int(number)) for number in sample["loss_mask"]] == numbers_after("    loss mask")


def test_the_blend():
    shown = re.search(r"3 : 1 gives ([AB ]+) and so on", TEXT).group(1).split()
    assert ["AB"[number] for number in build_blend(np.array([0.75, 0.25]), 8)[0]] == shown
