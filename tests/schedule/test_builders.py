import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.errors import ScheduleError
from megalite.schedule.actions import Kind
from megalite.schedule.builders import forward_only, gpipe, interleaved, one_f_one_b
from megalite.schedule.builders._order import chunk_order, group_sizes
from megalite.schedule.simulate import simulate


def _text(actions):
    return " ".join(map(str, actions))


def test_1f1b_of_one_rank_is_gradient_accumulation():
    assert _text(one_f_one_b.build(1, 1, 3).ranks[0]) == "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2"


def test_1f1b_by_hand():
    schedule = one_f_one_b.build(3, 1, 4)
    assert [_text(actions) for actions in schedule.ranks] == [
        "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3",
        "F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3",
        "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3",
    ]


def test_1f1b_with_fewer_microbatches_than_ranks():
    assert _text(one_f_one_b.build(4, 1, 2).ranks[0]) == "F0.0 F0.1 B0.0 B0.1"


def test_1f1b_has_no_virtual_stages():
    with pytest.raises(
        ScheduleError, match="one stage per rank; given 2 virtual stages: use --pipeline-schedule interleaved"
    ):
        one_f_one_b.build(4, 2, 8)


def test_gpipe_by_hand():
    schedule = gpipe.build(2, 2, 2)
    assert [_text(actions) for actions in schedule.ranks] == [
        "F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1",
        "F1.0 F1.1 F3.0 F3.1 B3.0 B3.1 B1.0 B1.1",
    ]


def test_forward_only_by_hand():
    schedule = forward_only.build(2, 2, 3)
    assert schedule.forward_only
    assert _text(schedule.ranks[1]) == "F1.0 F1.1 F1.2 F3.0 F3.1 F3.2"


def test_megatron_s_example_of_a_short_last_group():
    """PP 2, VPP 2, groups of 3, 5 micro-batches: the table in Megatron-LM's comments."""
    order = chunk_order(group_sizes(5, 3, smallest=2), virtual=2)
    assert [microbatch for _, microbatch in order] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [chunk for chunk, _ in order] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


@given(st.integers(2, 8), st.integers(2, 4), st.integers(1, 4), st.integers(0, 3))
@settings(deadline=None)
def test_interleaved_is_megatron_s_order(pp, virtual, groups, larger):
    """Where Megatron-LM accepts the request, its closed formulas give the same lists."""
    group = pp + larger
    total = groups * group * virtual
    for rank, actions in enumerate(interleaved.build(pp, virtual, groups * group, microbatch_group_size=group).ranks):
        warmup = min(total, 2 * (pp - rank - 1) + (virtual - 1) * group)

        def unit(k):
            chunk = k % (group * virtual) // group
            return chunk, k // (group * virtual) * group + k % group

        expected = []
        for k in range(total + warmup):
            if k < total:
                chunk, microbatch = unit(k)
                expected.append(f"F{chunk * pp + rank}.{microbatch}")
            if k >= warmup:
                chunk, microbatch = unit(k - warmup)
                expected.append(f"B{(virtual - 1 - chunk) * pp + rank}.{microbatch}")
        assert _text(actions) == " ".join(expected)


@given(st.integers(1, 8), st.integers(1, 17))
@settings(deadline=None)
def test_interleaved_with_one_stage_per_rank_is_1f1b(pp, num_microbatches):
    assert interleaved.build(pp, 1, num_microbatches).ranks == one_f_one_b.build(pp, 1, num_microbatches).ranks


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
@settings(deadline=None)
def test_groups_hold_all_microbatches_and_are_never_shorter_than_the_pipeline(num_microbatches, pp, larger):
    sizes = group_sizes(num_microbatches, pp + larger, pp)
    assert sum(sizes) == num_microbatches
    assert sizes == sorted(sizes, reverse=True)
    if num_microbatches >= pp:
        assert min(sizes) >= pp


def test_a_remainder_is_spread_over_the_groups():
    assert group_sizes(9, 4, 4) == [5, 4]
    assert group_sizes(14, 4, 4) == [5, 5, 4]
    assert group_sizes(3, 4, 4) == [3]


def test_a_group_shorter_than_the_pipeline_is_refused():
    with pytest.raises(
        ScheduleError,
        match="--microbatch-group-size-per-virtual-pipeline-stage 3 and 4 pipeline ranks: give at least 4",
    ):
        interleaved.build(4, 2, 8, microbatch_group_size=3)


@given(st.integers(1, 8), st.integers(1, 17))
@settings(deadline=None)
def test_1f1b_keeps_at_most_p_minus_rank_microbatches(pp, num_microbatches):
    timeline = simulate(one_f_one_b.build(pp, 1, num_microbatches))
    assert timeline.peak_live == tuple(min(pp - rank, num_microbatches) for rank in range(pp))


@given(st.integers(1, 8), st.integers(2, 4), st.integers(1, 17))
@settings(deadline=None)
def test_interleaved_keeps_its_warmup_and_one_more(pp, virtual, num_microbatches):
    largest = group_sizes(num_microbatches, pp, pp)[0]
    schedule = interleaved.build(pp, virtual, num_microbatches)
    for rank, live in enumerate(simulate(schedule).peak_live):
        assert live == min(virtual * num_microbatches, 2 * (pp - rank - 1) + (virtual - 1) * largest + 1)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 17))
@settings(deadline=None)
def test_gpipe_keeps_everything_and_evaluation_nothing(pp, virtual, num_microbatches):
    assert simulate(gpipe.build(pp, virtual, num_microbatches)).peak_live == (virtual * num_microbatches,) * pp
    evaluation = forward_only.build(pp, virtual, num_microbatches)
    assert simulate(evaluation).peak_live == (1,) * pp
    assert {action.kind for actions in evaluation.ranks for action in actions} == {Kind.F}
