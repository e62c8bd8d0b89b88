import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from megalite.errors import ConfigError
from megalite.topology.placement import SplitOptions, owner, split_layers, stages_of

sizes = st.integers(1, 5)


def _kinds(num_layers):
    return ["embedding", *["layer"] * num_layers, "head"]


def _sizes(num_layers, **options):
    return [len(stage) for stage in split_layers(_kinds(num_layers), SplitOptions(**options))]


def test_stages_go_round_the_ranks():
    assert [owner(stage, 3) for stage in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert stages_of(1, 3, 2) == (1, 4)


@given(sizes, sizes)
@settings(deadline=None)
def test_owner_and_stages_agree(pp, virtual):
    assert {stage: rank for rank in range(pp) for stage in stages_of(rank, pp, virtual)} == {
        stage: owner(stage, pp) for stage in range(pp * virtual)
    }


def test_even_split():
    assert split_layers(_kinds(8), SplitOptions(pp=2, virtual=2)) == [[0, 1, 2], [3, 4], [5, 6], [7, 8, 9]]
    assert split_layers(_kinds(1), SplitOptions()) == [[0, 1, 2]]


def test_embedding_and_head_may_count_as_layers():
    assert _sizes(6, pp=4, count_embedding=True, count_head=True) == [2, 2, 2, 2]
    assert _sizes(7, pp=2, virtual=2, count_embedding=True) == [2, 2, 2, 3]
    assert _sizes(7, pp=2, virtual=2, count_head=True) == [3, 2, 2, 2]
    assert _sizes(6, count_embedding=True, count_head=True) == [8]
    assert _sizes(2, pp=4, count_embedding=True, count_head=True) == [1, 1, 1, 1]


def test_ranks_of_their_own_size():
    """Counts are per rank: 4 layers on rank 0 with two virtual stages are 2 in each."""
    assert _sizes(10, pp=4, first=1) == [2, 3, 3, 4]
    assert _sizes(10, pp=4, last=1) == [4, 3, 3, 2]
    assert _sizes(10, pp=4, first=2, last=4) == [3, 2, 2, 5]
    assert _sizes(48, pp=2, first=22, last=26) == [23, 27]
    assert _sizes(16, pp=3, virtual=2, first=4, last=4) == [3, 4, 2, 2, 4, 3]


def test_layers_of_interleaved_uneven_stages():
    """PP 2, VPP 2, 4 layers on rank 0 and 8 on rank 1: ids 0-1, 2-5, 6-7, 8-11 (units count the embedding)."""
    stages = split_layers(_kinds(12), SplitOptions(pp=2, virtual=2, first=4))
    assert stages == [[0, 1, 2], [3, 4, 5, 6], [7, 8], [9, 10, 11, 12, 13]]


def test_layout():
    assert split_layers(_kinds(4), SplitOptions(pp=2, virtual=2, layout="E|tt|(t)*2|L")) == [[0], [1, 2], [3, 4], [5]]


@given(
    sizes,
    sizes,
    st.integers(0, 24),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 9),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None)
def test_no_layer_is_lost_or_moved(pp, virtual, num_layers, first, last, count_embedding, count_head):
    options = SplitOptions(pp, virtual, first, last, count_embedding, count_head)
    try:
        stages = split_layers(_kinds(num_layers), options)
    except ConfigError:
        return  # refused, which the tests of refusals below are about
    assert len(stages) == pp * virtual
    assert [unit for stage in stages for unit in stage] == list(range(num_layers + 2))
    per_rank = [sum(len(stages[stage]) for stage in stages_of(rank, pp, virtual)) for rank in range(pp)]
    if first is not None:
        assert per_rank[0] == first + 1
    if last is not None:
        assert per_rank[-1] == last + 1


@given(st.integers(2, 5), sizes, sizes, sizes, sizes, st.sampled_from(["first", "last", "both"]))
@settings(deadline=None)
def test_every_uneven_split_that_adds_up_is_accepted(pp, virtual, first, middle, last, given_flags):
    first = middle if given_flags == "last" else first
    last = middle if given_flags == "first" else last
    per_rank = [first, *[middle] * (pp - 2), last]
    flags = {"first": first * virtual, "last": last * virtual}
    flags = flags if given_flags == "both" else {given_flags: flags[given_flags]}
    counts = _sizes(sum(per_rank) * virtual, pp=pp, virtual=virtual, **flags)
    counts[0] -= 1
    counts[-1] -= 1
    assert counts == per_rank * virtual


@given(sizes, sizes, st.integers(1, 6), st.booleans(), st.booleans())
@settings(deadline=None)
def test_every_even_split_that_adds_up_is_accepted(pp, virtual, per_stage, count_embedding, count_head):
    num_layers = pp * virtual * per_stage - count_embedding - count_head
    assume(num_layers > 0)
    counts = _sizes(num_layers, pp=pp, virtual=virtual, count_embedding=count_embedding, count_head=count_head)
    layers = list(counts)
    layers[0] -= 0 if count_embedding else 1
    layers[-1] -= 0 if count_head else 1
    assert layers == [per_stage] * (pp * virtual)


@pytest.mark.parametrize(
    "num_layers, options, message",
    [
        (
            5,
            {"pp": 2},
            r"num_layers \(5\) must be a multiple of 2 pipeline ranks: use 4 or 6 layers, or cut unevenly with --deco",
        ),
        (
            10,
            {"pp": 2, "virtual": 2},
            r"num_layers \(10\) must be a multiple of 2 pipeline ranks x 2 virtual stages = 4: use 8 or 12",
        ),
        (80, {"pp": 16, "virtual": 2}, r"num_layers \(80\) .* = 32: use 64 or 96 layers"),
        (30, {"pp": 4}, r"num_layers \(30\) must be a multiple of 4 pipeline ranks: use 28 or 32"),
        (3, {"pp": 4}, r"num_layers \(3\) must be a multiple of 4 pipeline ranks: use 4 layers"),
        (0, {"pp": 1}, r"num_layers \(0\) must be a multiple of 1 pipeline ranks: use 1 layers"),
        (
            11,
            {"pp": 4, "count_embedding": True, "count_head": True},
            r"num_layers \(11\) \+ 2 for --account-for-embedding-in-.* and --account-for-loss-in-.* .* use 10 or 14",
        ),
        (
            48,
            {"pp": 2, "first": 11, "last": 13},
            r"hold all 48 layers; given --decoder-first-pipeline-num-layers 11 and --decoder-last.* 13, which is 24",
        ),
        (4, {"pp": 1, "last": 2}, r"at least 2 pipeline ranks; given --decoder-last-pipeline-num-layers 2 with 1 rank"),
        (8, {"pp": 2, "first": 0}, r"at least 1 layer; given --decoder-first-pipeline-num-layers 0"),
        (
            8,
            {"pp": 4, "first": 3},
            r"--decoder-first-pipeline-num-layers 3 leaves of 8 must divide over the other 3 .* 5 are left",
        ),
        (
            8,
            {"pp": 4, "first": 4, "last": 4},
            r"leaves of 8 must divide over the other 2 pipeline ranks, at least 1 each; 0 are left",
        ),
        (8, {"pp": 2, "last": 9}, r"at least 1 each; -1 are left"),
        (
            8,
            {"pp": 2, "virtual": 2, "first": 3},
            r"multiple of its virtual stages \(2\); rank 0 has 3 of 8; given --decoder-first-pipeline-num-layers 3",
        ),
        (9, {"pp": 2, "virtual": 2, "first": 4}, r"multiple of its virtual stages \(2\); rank 1 has 5 of 9"),
        (
            8,
            {"pp": 2, "first": 4, "count_head": True},
            r"in one way; given --decoder-first-pipeline-num-layers 4 as well as --account-for-loss",
        ),
        (
            8,
            {"pp": 2, "first": 4, "layout": "Et*4|t*4L"},
            r"in one way; given --pipeline-model-parallel-layout as well as --decoder-first",
        ),
        (
            8,
            {"pp": 2, "layout": "Et*4|t*2|t|tL"},
            r"--pipeline-model-parallel-layout must describe 2 pipeline ranks; it describes 4: add or remove",
        ),
        (8, {"pp": 2, "layout": "Et*4|t*2L"}, r"must hold all 8 layers .t.; it holds 6"),
    ],
)
def test_contradictions_are_refused_with_their_numbers(num_layers, options, message):
    with pytest.raises(ConfigError, match=message):
        split_layers(_kinds(num_layers), SplitOptions(**options))
