"""Recomputation keeps as many bytes as it says, to the byte, at every --recompute-num-layers and layout."""

import dataclasses
import itertools
from pathlib import Path

import pytest
import torch

from benchmarks.live_memory import LiveMemory
from benchmarks.recompute_memory import CASES, LAYOUTS, MODEL, Case, Layout, count, formula
from megalite.nn.recompute import RecomputePlan
from tests.harness import run_world
from tests.nn.world import layer_context

SMALL = dataclasses.replace(MODEL, num_layers=5, hidden_size=64, num_attention_heads=4, seq_length=64)
INPUT = 2 * SMALL.seq_length * SMALL.hidden_size
"""Bytes of a layer's whole input in bfloat16."""


def count_all(rank, world_size, sequence_parallel, cases):
    ctx = layer_context(rank, world_size, sequence_parallel, torch.bfloat16)
    return [count(SMALL, ctx, case) for case in cases]


def full(method, num_layers):
    return Case("", RecomputePlan("full", method, num_layers))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_full_recomputation_keeps_one_input_a_group_and_its_own_part_of_it(layout):
    sizes = (1, 2, 3, 5, 7)
    cases = [full("uniform", size) for size in sizes] + [full("block", size) for size in sizes] + [Case("none")]
    own = INPUT // layout.tp if layout.sequence_parallel else INPUT
    for memories in run_world(count_all, layout.tp, layout.sequence_parallel, cases):
        kept = [memory.kept for memory in memories]
        none = kept.pop()
        assert kept[:5] == [own * groups for groups in (5, 3, 2, 1, 1)]
        assert kept[5:] == [own * size + none // 5 * (5 - size) for size in (1, 2, 3, 5, 5)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_case_keeps_what_the_paper_says_but_for_what_is_always_made_again(layout):
    for memories in run_world(count_all, layout.tp, layout.sequence_parallel, CASES):
        for case, memory in zip(CASES, memories):
            expected = formula(SMALL, layout, case, ours=True) * SMALL.seq_length * SMALL.hidden_size * SMALL.num_layers
            assert 0.9 * expected < memory.kept < 1.13 * expected, case.name
            assert memory.kept < memory.peak


def test_the_formulas_are_the_papers():
    """34 s b h (1 + 5 a s / 34 h) for GPT-3's 80, and Table 2's other rows, at tensor-parallel size 8."""
    gpt3 = dataclasses.replace(MODEL, num_layers=96, hidden_size=12288, num_attention_heads=96, seq_length=2048)
    none, _, selective, uniform, _, _ = CASES
    assert formula(gpt3, Layout(1, False), none) == 34 + 80
    assert formula(gpt3, Layout(8, False), none) == 10 + 104 / 8
    assert formula(gpt3, Layout(8, True), none) == 114 / 8
    assert formula(gpt3, Layout(8, True), selective) == 34 / 8
    assert formula(gpt3, Layout(8, False), uniform) == 2


def test_the_page_shows_every_case_with_its_formula():
    page = (Path(__file__).parents[2] / "docs" / "recompute.md").read_text(encoding="utf-8")
    for layout, case in itertools.product(LAYOUTS, CASES):
        assert f"\n| {layout} | {case.name} | {formula(MODEL, layout, case):.1f} | " in page


def test_live_memory_counts_storages_from_making_to_freeing():
    outside = torch.zeros(10)
    with LiveMemory() as memory:
        first = torch.zeros(100)
        view = first.view(10, 10)[1:]
        outside.add_(1)
        assert memory.now == memory.peak == 400
        total = (first + 1).sum()
        assert (memory.now, memory.peak) == (404, 804)
        del first
        assert memory.now == 404, "the view still holds it"
        del view, total
        assert memory.now == 0
