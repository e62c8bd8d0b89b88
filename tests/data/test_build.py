import logging
import os

import numpy as np
import pytest

from megalite.data.blend import BlendedDataset
from megalite.data.build import build_datasets
from megalite.data.sidecar import Sidecar
from megalite.errors import ConfigError, DataError
from tests.data.corpora import FakeVocabulary, numbered, request, write_corpus


@pytest.fixture
def prefixes(tmp_path):
    """Two corpora of 1000 documents of 10 tokens, whose ids tell which corpus and document they are from."""
    documents = [[document] * 10 for document in range(1000)]
    return [
        write_corpus(tmp_path / "a", documents),
        write_corpus(tmp_path / "b", [[d[0] + 1000] * 10 for d in documents]),
    ]


def ids(dataset, count=None):
    return {int(token) for k in range(count or len(dataset)) for token in dataset[k]["tokens"]}


def test_splits_read_their_own_documents(prefixes):
    train, valid, test = build_datasets(request(5, data_path=prefixes[:1], split="80,15,5"), (1000, 200, 50))
    assert ids(train) <= set(range(800)) and ids(valid) <= set(range(800, 950)) and ids(test) <= set(range(950, 1000))
    assert len(train) == (8000 - 1) // 5


def test_the_default_split_is_megatrons(prefixes):
    datasets = build_datasets(request(5, data_path=prefixes[:1]), (10, 10, 1))
    assert [
        ids(dataset) <= set(part) for dataset, part in zip(datasets, (range(969), range(969, 999), range(999, 1000)))
    ] == [True] * 3


def test_splits_of_which_nothing_is_wanted_are_not_built(prefixes):
    train, valid, test = build_datasets(request(5, data_path=prefixes[:1]), (10, 0, 0))
    assert train is not None and valid is None and test is None


def test_weighted_blends_are_built_with_the_surplus(prefixes):
    paths = ("3", prefixes[0], "1", prefixes[1])
    train = build_datasets(request(5, data_path=paths, split="100"), (4000, 0, 0)).train
    assert isinstance(train, BlendedDataset) and len(train) == 4000
    assert np.bincount(train.dataset_index).tolist() == [3000, 1000]
    # ceil(3000 * 1.005) = 3015 samples need two epochs of 9999 usable tokens, 1005 need one
    assert [len(dataset) for dataset in train.datasets] == [(20000 - 1) // 5, (10000 - 1) // 5]
    train = build_datasets(request(5, data_path=("1", prefixes[0], "1", prefixes[1]), split="100"), (3990, 0, 0)).train
    # 1995 samples of each would fit in an epoch's 1999, ceil(1995 * 1.005) = 2005 do not
    assert [len(dataset) for dataset in train.datasets] == [(20000 - 1) // 5] * 2


def test_prefixes_without_weights_blend_by_size(prefixes, tmp_path):
    small = write_corpus(tmp_path / "small", [[5] * 501])
    train = build_datasets(request(5, data_path=(prefixes[0], small), split="100"), (1050, 0, 0)).train
    assert len(train) == 1050 and np.bincount(train.dataset_index).tolist() == [1000, 50]  # 1999 : 100 samples an epoch
    longer = build_datasets(request(5, data_path=(prefixes[0], small), split="100"), (4198, 0, 0)).train
    assert np.bincount(longer.dataset_index).tolist() == [3998, 200]
    assert ids(longer) == ids(train) | set(range(1000))


def test_one_prefix_with_a_weight_is_no_blend(prefixes):
    train = build_datasets(request(5, data_path=("1", prefixes[0])), (10, 0, 0)).train
    assert not isinstance(train, BlendedDataset)


def test_splits_with_paths_of_their_own(prefixes):
    datasets = build_datasets(
        request(5, train_data_path=("1", prefixes[0], "1", prefixes[1]), valid_data_path=prefixes[1:]), (10, 10, 10)
    )
    assert len(ids(datasets.train)) > 1 and ids(datasets.valid) <= set(range(1000, 2000)) and datasets.test is None


@pytest.mark.parametrize(
    "data, given",
    [
        ({}, "given none of them"),
        ({"data_path": ("p",), "valid_data_path": ("q",)}, "given --data-path and --valid-data-path"),
        ({"split": "1,1,1", "train_data_path": ("q",)}, "given --split and --train-data-path"),
    ],
)
def test_contradicting_flags_are_refused(data, given):
    with pytest.raises(ConfigError, match=given):
        build_datasets(request(5, **data), (1, 0, 0))


def test_training_needs_a_path(prefixes):
    with pytest.raises(ConfigError, match="--train-data-path must be given"):
        build_datasets(request(5, valid_data_path=prefixes[:1]), (1, 1, 0))
    assert build_datasets(request(5, valid_data_path=prefixes[:1]), (0, 1, 0)).valid is not None


def test_an_unknown_kind_lists_the_kinds(prefixes):
    with pytest.raises(ConfigError, match="'bret'; choose from: .*gpt"):
        build_datasets(request(5, data_path=prefixes[:1]), (1, 0, 0), kind="bret")


def test_an_empty_training_split_is_an_error_and_an_empty_validation_split_a_warning(tmp_path, caplog):
    caplog.set_level(logging.INFO, "megalite")
    prefix = write_corpus(tmp_path / "c", numbered([5] * 9))
    with pytest.raises(
        DataError, match=r"train split of .*c \(sequences 0..0 of 9\) must have at least 1 tokens; it has 0"
    ):
        build_datasets(request(4, data_path=(prefix,), split="1,98,1"), (1, 0, 0))
    caplog.clear()
    datasets = build_datasets(request(4, data_path=(prefix,), split="98,1,1"), (1, 1, 0))
    assert datasets.valid is None
    assert (
        "warning: the valid split" in caplog.text
        and "sequences 9..9 of 9) holds no tokens and is left out" in caplog.text
    )
    assert "test split" not in caplog.text


def test_a_blend_goes_on_without_an_empty_validation_part(prefixes, tmp_path):
    tiny = write_corpus(tmp_path / "tiny", numbered([5] * 9))
    paths = ("1", tiny, "1", prefixes[1])
    datasets = build_datasets(request(4, data_path=paths, split="98,1,1"), (10, 10, 0))
    assert isinstance(datasets.train, BlendedDataset) and ids(datasets.valid) <= set(range(1980, 1990))


def test_the_tokenizer_is_checked_against_the_corpus(tmp_path):
    prefix = write_corpus(tmp_path / "c", numbered([30]), sidecar=Sidecar("0123", 100, 99, True))
    build_datasets(request(4, data_path=(prefix,), split="1"), (1, 0, 0))
    other = FakeVocabulary()
    other.eod = 2
    with pytest.raises(DataError, match=r"end-of-document id 99 \(now 2\)"):
        build_datasets(request(4, vocabulary=other, data_path=(prefix,), split="1"), (1, 0, 0))


def test_a_missing_corpus_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.idx must exist for --data-path"):
        build_datasets(request(4, data_path=(str(tmp_path / "nowhere"),)), (1, 0, 0))


def test_data_rewritten_in_place_gets_new_indices(tmp_path):
    def tokens():
        train = build_datasets(request(4, data_path=(prefix,), split="1"), (3, 0, 0)).train
        return sorted(token for k in range(3) for token in train[k]["tokens"].tolist())

    prefix = write_corpus(tmp_path / "c", numbered([13]))
    assert tokens() == list(range(12))
    write_corpus(tmp_path / "c", [[50 + k] for k in range(13)])
    assert set(tokens()) <= set(range(50, 63)) and len(set(tokens())) == 12


def test_caches_lie_beside_the_corpus_or_where_asked(prefixes, tmp_path):
    build_datasets(request(5, data_path=prefixes[:1]), (10, 0, 0))
    assert [name.split("-")[:2] for name in os.listdir(tmp_path / "cache")] == [["gpt", "train"]]
    build_datasets(
        request(5, data_path=("1", prefixes[0], "1", prefixes[1]), data_cache_path=str(tmp_path / "mine")), (10, 0, 0)
    )
    kinds = sorted(name.split("-")[0] for name in os.listdir(tmp_path / "mine"))
    assert kinds == ["blend", "gpt", "gpt"] and len(os.listdir(tmp_path / "cache")) == 1


def test_a_second_start_reads_no_array_of_the_corpus(prefixes, monkeypatch):
    first = build_datasets(request(5, data_path=prefixes[:1]), (10, 0, 0)).train
    monkeypatch.setattr("megalite.data.datasets.gpt.build_indices", None)
    monkeypatch.setattr("megalite.data.indexed.IndexedDataset.validate", None)
    again = build_datasets(request(5, data_path=prefixes[:1]), (10, 0, 0)).train
    assert again.fingerprint == first.fingerprint
    assert all(np.array_equal(again[k]["tokens"], first[k]["tokens"]) for k in range(10))


def test_the_fingerprint_tells_a_changed_mix(prefixes):
    def fingerprint(seq_length=5, seed=1234, **data):
        return build_datasets(request(seq_length, seed, **data), (100, 0, 0)).train.fingerprint

    a, b = prefixes
    base = fingerprint(data_path=("1", a, "1", b))
    assert fingerprint(data_path=("2", a, "2", b)) == base
    changed = [
        fingerprint(data_path=("1", a, "2", b)),
        fingerprint(data_path=("1", a, "1", b, "1", b)),
        fingerprint(data_path=(a,)),
        fingerprint(data_path=("1", a, "1", b), seq_length=6),
        fingerprint(data_path=("1", a, "1", b), seed=1),
        fingerprint(data_path=("1", a, "1", b), split="90,10"),
    ]
    assert len({base, *changed}) == 7
