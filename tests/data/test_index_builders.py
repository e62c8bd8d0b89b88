import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.index_builders import build_blend, build_sample_index, sample_index_dtype, shuffle
from tests.data.corpora import VECTORS


def walked_sample_index(lengths, order, num_samples, seq_length, extra):
    """The definition, token by token: sample k reads tokens k * seq_length ... (k + 1) * seq_length + extra - 1."""
    stream = [(position, offset) for position, document in enumerate(order) for offset in range(lengths[document])]
    rows = [(0, 0)]
    for k in range(1, num_samples + 1):
        last_read = k * seq_length + extra - 1
        if last_read < len(stream):
            position, offset = stream[last_read]
            rows.append((position, offset - extra + 1))
        else:
            rows.append((len(order) - 1, lengths[order[-1]] - extra))
    return rows


@pytest.mark.parametrize("vector", VECTORS["build_sample_idx"])
def test_sample_index_equals_megatrons(implementation, vector):
    result = build_sample_index(
        np.array(vector["sizes"], np.int32),
        np.array(vector["document_idx"], np.int32),
        len(vector["result"]) - 1,
        vector["seq_length"],
        vector["add_extra"],
    )
    assert result.tolist() == vector["result"] and result.dtype == np.int32


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data(), st.integers(1, 11), st.sampled_from([0, 1]))
def test_both_sample_indices_follow_the_definition(lengths, data, seq_length, extra):
    order = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=20))
    total = sum(lengths[document] for document in order)
    num_samples = data.draw(st.integers(0, total // seq_length + 1))
    expected = walked_sample_index(lengths, order, num_samples, seq_length, extra)
    for module in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MEGALITE_NATIVE", module)
            result = build_sample_index(
                np.array(lengths, np.int32), np.array(order, np.int32), num_samples, seq_length, extra
            )
        assert [tuple(row) for row in result.tolist()] == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 20), st.integers(1, 9), st.booleans())
def test_the_number_of_threads_and_the_width_do_not_show(native_module, lengths, seq_length, threads, wide):
    lengths = np.array(lengths, np.int32)
    order = np.random.default_rng(0).permutation(len(lengths)).astype(np.int64 if wide else np.int32)
    num_samples = int(lengths.sum()) // seq_length
    arguments = lengths, order, num_samples, seq_length, 1, wide
    result = native_module.build_sample_index(*arguments, threads)
    assert np.array_equal(result, native_module.build_sample_index(*arguments, 1))
    assert result.dtype == (np.int64 if wide else np.int32)


def test_token_counts_beyond_int32_and_float32(implementation):
    """Five documents of 2^31 - 1 tokens: starts lie far beyond int32, and are no multiples of what float32 resolves."""
    lengths = np.full(5, 2**31 - 1, np.int32)
    seq_length = 10**9 + 7
    num_samples = (5 * (2**31 - 1) - 1) // seq_length
    result = build_sample_index(lengths, np.arange(5, dtype=np.int32), num_samples, seq_length)
    assert [(row[0] * (2**31 - 1)) + row[1] for row in result.tolist()] == [
        k * seq_length for k in range(num_samples + 1)
    ]


def test_mapped_unaligned_lengths_are_read_right(implementation):
    raw = np.frombuffer(b"\0" + np.array([5, 3, 9], np.int32).tobytes(), np.uint8)
    lengths = np.frombuffer(raw.data, np.int32, 3, 1)
    assert build_sample_index(lengths, np.arange(3, dtype=np.int32), 4, 4).tolist() == [
        [0, 0],
        [0, 4],
        [2, 0],
        [2, 4],
        [2, 8],
    ]


@pytest.mark.parametrize("positions, dtype", [(2**31 - 1, np.int32), (2**31, np.int64), (30_000_000 * 100, np.int64)])
def test_sample_index_is_wide_enough_for_all_positions(positions, dtype):
    assert sample_index_dtype(positions) == dtype


@pytest.mark.parametrize("vector", VECTORS["build_blending_indices"])
def test_blend_equals_megatrons(implementation, vector):
    dataset, sample = build_blend(np.array(vector["weights"]), vector["size"])
    assert dataset.tolist() == vector["dataset_index"] and sample.tolist() == vector["dataset_sample_index"]
    assert dataset.dtype == np.int16 and sample.dtype == np.int64


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8), st.integers(0, 300))
def test_both_blends_agree_and_stay_within_one_sample_of_the_weights(weights, size):
    shares = np.array(weights) / np.sum(weights)
    results = []
    for module in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MEGALITE_NATIVE", module)
            results.append(build_blend(shares, size))
    assert all(np.array_equal(left, right) for left, right in zip(*results))
    dataset, sample = results[0]
    for d, share in enumerate(shares):
        assert sample[dataset == d].tolist() == list(range(int((dataset == d).sum())))
        assert (dataset == d).sum() <= np.ceil(size * share + 1e-9)


@given(
    st.integers(0, 2000), st.sampled_from(["int32", "uint32", "int64"]), st.integers(0, 2**32 - 1), st.integers(0, 700)
)
def test_shuffle_is_numpys_and_leaves_its_state(size, dtype, seed, drawn_before):
    ours, numpys = np.random.RandomState(seed), np.random.RandomState(seed)
    for random in (ours, numpys):
        random.randint(0, 2**31, drawn_before, np.int64)
    array, expected = np.arange(size, dtype=dtype), np.arange(size, dtype=dtype)
    shuffle(array[size // 3 :], ours)
    numpys.shuffle(expected[size // 3 :])
    assert np.array_equal(array, expected) and ours.randint(2**31) == numpys.randint(2**31)


@pytest.mark.parametrize("size", [2**16, 2**16 + 1, 10**6])
def test_long_arrays_are_shuffled_like_numpys(implementation, size):
    array, expected = np.arange(size, dtype=np.int32), np.arange(size, dtype=np.int32)
    shuffle(array, np.random.RandomState(5))
    np.random.RandomState(5).shuffle(expected)
    assert np.array_equal(array, expected)
