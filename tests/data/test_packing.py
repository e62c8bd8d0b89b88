import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.packing import (
    Packing,
    build_indices,
    document_index_dtype,
    plan_packing,
    random_state,
    shuffle_index_dtype,
)
from tests.data.corpora import VECTORS


@pytest.mark.parametrize("vector", VECTORS["gpt_indices"])
def test_indices_equal_megatrons(vector):
    sizes = np.array(vector["sizes"], np.int32)
    packing = plan_packing(int(sizes.sum()), vector["seq_length"], vector["num_samples"])
    assert packing.num_epochs == vector["num_epochs"] and packing.separate_final_epoch == vector["separate_final_epoch"]
    if packing.separate_final_epoch:
        assert packing.samples_before_final_epoch == vector["samples_before_final_epoch"]
    indices = build_indices(sizes, 0, len(sizes), packing, vector["seed"])
    for name, index in indices.items():
        assert index.tolist() == vector[name], name
    assert [index.dtype for index in indices.values()] == [np.int32, np.int32, np.uint32]


@given(st.integers(1, 10**13), st.integers(1, 10**6), st.integers(1, 10**13))
def test_epochs_are_the_fewest_that_suffice(tokens, seq_length, num_samples):
    packing = plan_packing(tokens, seq_length, num_samples)
    assert packing.num_epochs * tokens >= num_samples * seq_length + 1
    assert packing.num_epochs == 1 or (packing.num_epochs - 1) * tokens < num_samples * seq_length + 1
    in_final_epoch = num_samples - packing.samples_before_final_epoch
    assert 0 <= in_final_epoch <= packing.samples_in(1) + 1
    assert packing.num_samples >= num_samples


@pytest.mark.parametrize("tokens, samples", [(64, 0), (65, 1), (128, 1), (129, 2), (1, 0)])
def test_one_epoch_holds_what_fits_with_a_label_for_the_last_token(tokens, samples):
    assert plan_packing(tokens, 64, None).num_samples == samples


def test_a_corpus_shorter_than_a_sample_wraps_around():
    packing = plan_packing(15, 64, 80)
    assert packing.num_epochs == 342 and packing.num_samples >= 80  # (80 * 64 + 1) / 15 = 341.4
    lengths = np.array([5, 5, 5], np.int32)
    sample_index = build_indices(lengths, 0, 3, packing, 1)["sample_index"]
    assert (np.diff(sample_index[:, 0] * 5 + sample_index[:, 1]) == 64).all()


def test_only_the_part_is_read():
    indices = build_indices(np.array([9, 4, 4, 4, 9], np.int32), 1, 4, Packing(12, 4, 2, False), 7)
    assert sorted(indices["document_index"].tolist()) == [1, 1, 2, 2, 3, 3]


def orders(seed, num_epochs=3, documents=10):
    lengths = np.full(documents, 4, np.int32)
    packing = Packing(4 * documents, 4, num_epochs, True)
    return build_indices(lengths, 0, documents, packing, seed)


def test_epochs_differ_seeds_differ_and_a_seed_repeats():
    first, again, other = orders(1), orders(1), orders(2)
    for name in ("document_index", "shuffle_index"):
        assert first[name].tolist() == again[name].tolist() != other[name].tolist()
    shared, final = first["document_index"][:20], first["document_index"][20:]
    assert sorted(final) == list(range(10)) and sorted(shared) == sorted([*range(10)] * 2)
    assert shared[:10].tolist() != final.tolist() != shared[10:].tolist()
    before, total = Packing(40, 4, 3, True).samples_before_final_epoch, len(first["shuffle_index"])
    assert sorted(first["shuffle_index"][:before]) == list(range(before))
    assert sorted(first["shuffle_index"][before:]) == list(range(before, total))


def test_seeds_of_63_bits_are_all_different():
    draws = {int(random_state(seed).randint(2**31)) for seed in (0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**63 - 1)}
    assert len(draws) == 7
    assert random_state(1234).randint(2**31) == np.random.RandomState(1234).randint(2**31)


def test_index_dtypes_hold_every_number():
    assert document_index_dtype(2**31 - 1) == np.int32 and document_index_dtype(2**31) == np.int64
    assert shuffle_index_dtype(2**32 - 3) == np.uint32 and shuffle_index_dtype(2**32 - 2) == np.int64
