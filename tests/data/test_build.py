import logging
import os

import numpy as np
import pytest

from megalite.data.blend import BlendedDataset
from megalite.data.build import Wanted, build_datasets
from megalite.data.sidecar import Sidecar
from megalite.data.datasets.gpt import GPTDataset
from megalite.errors import ConfigError, DataError
from tests.data.corpora import FakeVocabulary, numbered, prepared, request, write_corpus


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
    train, held_out = build_datasets(request(5, data_path=prefixes[:1], split="80,15,5"), Wanted(1000, 200, 50))
    valid, test = held_out["validation"].dataset, held_out["test"].dataset
    assert ids(train) <= set(range(800)) and ids(valid) <= set(range(800, 950)) and ids(test) <= set(range(950, 1000))
    assert len(train) == (8000 - 1) // 5


def test_the_default_split_is_megatrons(prefixes):
    datasets = build_datasets(request(5, data_path=prefixes[:1]), Wanted(10, 10, 1))
    read = [datasets.train, *(held_out.dataset for held_out in datasets.held_out.values())]
    parts = (range(969), range(969, 999), range(999, 1000))
    assert [ids(dataset) <= set(part) for dataset, part in zip(read, parts, strict=True)] == [True] * 3


def test_splits_of_which_nothing_is_wanted_are_not_built(prefixes):
    train, held_out = build_datasets(request(5, data_path=prefixes[:1]), Wanted(10))
    assert train is not None and held_out == {}


def test_weighted_blends_are_built_with_the_surplus(prefixes):
    paths = ("3", prefixes[0], "1", prefixes[1])
    train = build_datasets(request(5, data_path=paths, split="100"), Wanted(4000)).train
    assert len(train) == 4000 and train.consumed(4000) == [3000, 1000]
    # ceil(3000 * 1.005) = 3015 samples need two epochs of 9999 usable tokens, 1005 need one
    assert [len(dataset) for dataset in train.samples.datasets] == [(20000 - 1) // 5, (10000 - 1) // 5]
    train = build_datasets(request(5, data_path=("1", prefixes[0], "1", prefixes[1]), split="100"), Wanted(3990)).train
    # 1995 samples of each would fit in an epoch's 1999, ceil(1995 * 1.005) = 2005 do not
    assert [len(dataset) for dataset in train.samples.datasets] == [(20000 - 1) // 5] * 2


def test_equals_among_weights_are_decided_as_in_megatron(prefixes, tmp_path):
    third = write_corpus(tmp_path / "third", [[7] * 100] * 20)
    paths = ("0.7", prefixes[0], "0.2", prefixes[1], "0.1", third)
    train = build_datasets(request(5, data_path=paths, split="100"), Wanted(20)).train
    counts = [train.consumed(count) for count in range(21)]
    taken = [[a - b for a, b in zip(after, before)].index(1) for before, after in zip(counts, counts[1:])]
    # What megatron-core 0.16.1 takes.
    assert taken == [0, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0, 1, 0, 2, 0, 0, 1, 0, 0, 0]


def test_prefixes_without_weights_blend_by_size(prefixes, tmp_path):
    small = write_corpus(tmp_path / "small", [[5] * 501])
    train = build_datasets(request(5, data_path=(prefixes[0], small), split="100"), Wanted(1050)).train
    assert len(train) == 1050 and train.consumed(1050) == [1000, 50]  # 1999 : 100 samples an epoch
    longer = build_datasets(request(5, data_path=(prefixes[0], small), split="100"), Wanted(4198)).train
    assert longer.consumed(4198) == [3998, 200]
    assert ids(longer) == ids(train) | set(range(1000))


def test_one_prefix_with_a_weight_is_no_blend(prefixes):
    train = build_datasets(request(5, data_path=("1", prefixes[0])), Wanted(10)).train
    assert isinstance(train.samples, GPTDataset)


def test_splits_with_paths_of_their_own(prefixes):
    paths = {"train_data_path": ("1", prefixes[0], "1", prefixes[1]), "valid_data_path": prefixes[1:]}
    train, held_out = build_datasets(request(5, **paths), Wanted(10, 10, 10))
    assert len(ids(train)) > 1 and ids(held_out["validation"].dataset) <= set(range(1000, 2000))
    assert list(held_out) == ["validation"]


@pytest.mark.parametrize(
    "data, given",
    [
        ({}, "given none of them"),
        ({"data_path": ("p",), "valid_data_path": ("q",)}, "given data_path and valid_data_path"),
        ({"split": "1,1,1", "train_data_path": ("q",)}, "given train_data_path and split"),
    ],
)
def test_contradicting_flags_are_refused(data, given):
    with pytest.raises(ConfigError, match=given):
        build_datasets(request(5, **data), Wanted(1))


def test_training_needs_a_path(prefixes):
    with pytest.raises(ConfigError, match="there must be corpora to train on .* given none"):
        build_datasets(request(5, valid_data_path=prefixes[:1]), Wanted(1, 1, 0))
    assert build_datasets(request(5, valid_data_path=prefixes[:1]), Wanted(0, 1, 0)).held_out


def test_an_unknown_kind_lists_the_kinds(prefixes):
    with pytest.raises(ConfigError, match="'bret'; choose from: .*gpt"):
        build_datasets(request(5, data_path=prefixes[:1]), Wanted(1, 0, 0), kind="bret")


def test_an_empty_training_split_is_an_error_and_an_empty_validation_split_a_warning(tmp_path, caplog):
    caplog.set_level(logging.INFO, "megalite")
    prefix = write_corpus(tmp_path / "c", numbered([5] * 9))
    with pytest.raises(
        DataError, match=r"train split of .*c \(sequences 0..0 of 9\) must have at least 1 tokens; it has 0"
    ):
        build_datasets(request(4, data_path=(prefix,), split="1,98,1"), Wanted(1))
    caplog.clear()
    datasets = build_datasets(request(4, data_path=(prefix,), split="98,1,1"), Wanted(1, 1, 0))
    assert datasets.held_out == {}
    assert (
        "warning: the valid split" in caplog.text
        and "sequences 9..9 of 9) holds no tokens and is left out" in caplog.text
    )
    assert "test split" not in caplog.text


def test_a_blend_goes_on_without_an_empty_validation_part(prefixes, tmp_path):
    tiny = write_corpus(tmp_path / "tiny", numbered([5] * 9))
    paths = ("1", tiny, "1", prefixes[1])
    datasets = build_datasets(request(4, data_path=paths, split="98,1,1"), Wanted(10, 10, 0))
    assert isinstance(datasets.train.samples, BlendedDataset)
    assert ids(datasets.held_out["validation"].dataset) <= set(range(1980, 1990))


def test_the_tokenizer_is_checked_against_the_corpus(tmp_path):
    prefix = write_corpus(tmp_path / "c", numbered([30]), sidecar=Sidecar("0123", 100, 99, True))
    build_datasets(request(4, data_path=(prefix,), split="1"), Wanted(1))
    other = FakeVocabulary()
    other.eod = 2
    with pytest.raises(DataError, match=r"end-of-document id 99 \(now 2\)"):
        build_datasets(request(4, vocabulary=other, data_path=(prefix,), split="1"), Wanted(1))


def test_a_missing_corpus_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.idx must exist for --data-path"):
        build_datasets(request(4, data_path=(str(tmp_path / "nowhere"),)), Wanted(1))


def test_data_rewritten_in_place_gets_new_indices(tmp_path):
    def tokens():
        train = build_datasets(request(4, data_path=(prefix,), split="1"), Wanted(3)).train
        return sorted(token for k in range(3) for token in train[k]["tokens"].tolist())

    prefix = write_corpus(tmp_path / "c", numbered([13]))
    assert tokens() == list(range(12))
    write_corpus(tmp_path / "c", [[50 + k] for k in range(13)])
    assert set(tokens()) <= set(range(50, 63)) and len(set(tokens())) == 12


def test_caches_lie_beside_the_corpus_or_where_asked(prefixes, tmp_path):
    build_datasets(request(5, data_path=prefixes[:1]), Wanted(10)).prepare()
    assert [name.split("-")[:2] for name in os.listdir(tmp_path / "cache")] == [["gpt", "train"]]
    mine = {"data_path": ("1", prefixes[0], "1", prefixes[1]), "data_cache_path": str(tmp_path / "mine")}
    build_datasets(request(5, **mine), Wanted(10)).prepare(num_threads=3)
    kinds = sorted(name.split("-")[0] for name in os.listdir(tmp_path / "mine"))
    assert kinds == ["blend", "gpt", "gpt"] and len(os.listdir(tmp_path / "cache")) == 1


def test_a_second_start_reads_no_array_of_the_corpus(prefixes, monkeypatch):
    first = prepared(build_datasets(request(5, data_path=prefixes[:1]), Wanted(10)).train)
    monkeypatch.setattr("megalite.data.datasets.gpt.build_indices", None)
    monkeypatch.setattr("megalite.data.indexed.IndexedDataset.validate", None)
    again = build_datasets(request(5, data_path=prefixes[:1]), Wanted(10)).train
    assert again.fingerprint == first.fingerprint
    assert all(np.array_equal(again[k]["tokens"], first[k]["tokens"]) for k in range(10))


def test_the_fingerprint_tells_a_changed_mix(prefixes):
    def fingerprint(seq_length=5, seed=1234, **data):
        return build_datasets(request(seq_length, seed, **data), Wanted(100)).train.fingerprint

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


def test_several_validation_sets_are_read_each_by_itself(prefixes):
    paths = {"train_data_path": prefixes[:1], "valid_data_path": prefixes, "multiple_validation_sets": True}
    held_out = build_datasets(request(5, **paths), Wanted(10, 20)).held_out
    assert list(held_out) == ["validation a", "validation b"]
    read = [ids(entry.dataset, entry.num_samples) for entry in held_out.values()]
    assert read[0] <= set(range(1000)) and read[1] <= set(range(1000, 2000))
    assert {entry.num_samples for entry in held_out.values()} == {20}
    paths = {"data_path": ("1", prefixes[0], "2", prefixes[1]), "split": "8,2", "multiple_validation_sets": True}
    divided = build_datasets(request(5, **paths), Wanted(10, 20))
    assert ids(divided.held_out["validation b"].dataset) <= set(range(1800, 2000))


@pytest.mark.parametrize("lengths", [[(23,)], [(1,), (3, 0, 8)], [(20, 1), (21,), (22,), (0,)], [(2,)]], ids=str)
def test_full_validation_reads_every_target_once(tmp_path, lengths, caplog):
    """The last sample of a corpus may be incomplete; corpora without a target are left out."""
    caplog.set_level(logging.INFO, "megalite")
    documents = []
    for number, of_corpus in enumerate(lengths):
        documents.append([[token + 1000 * number for token in document] for document in numbered(of_corpus)])
    prefixes = tuple(write_corpus(tmp_path / str(number), corpus) for number, corpus in enumerate(documents))
    paths = {"train_data_path": prefixes[:1], "valid_data_path": prefixes, "full_validation": True}
    dataset, num_samples, _ = build_datasets(request(5, **paths), Wanted(1, None)).held_out["validation"]
    assert num_samples == len(dataset)
    assert num_samples == sum(-(-(sum(of_corpus) - 1) // 5) for of_corpus in lengths if sum(of_corpus) > 1)
    targets = []
    for sample in (dataset[number] for number in range(num_samples)):
        targets += sample["labels"][sample["loss_mask"] == 1].tolist()
    assert len(targets) == len(set(targets)) == sum(max(0, sum(of_corpus) - 1) for of_corpus in lengths)
    empty = [of_corpus for of_corpus in lengths if sum(of_corpus) < 2]
    assert caplog.text.count("is left out") == len(empty)
    assert dataset.padding()["loss_mask"].sum() == 0
    with pytest.raises(IndexError):
        dataset[num_samples]
