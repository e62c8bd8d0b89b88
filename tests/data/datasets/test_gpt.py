import logging

import numpy as np
import pytest

from megalite.data.build import Wanted, build_datasets
from megalite.data.dataset import Part
from megalite.data.datasets.gpt import SampleRules, assemble, build
from megalite.data.index_builders import build_sample_index
from megalite.data.indexed import IndexedDataset
from megalite.errors import ConfigError, DataError
from tests.data.corpora import EOD, VECTORS, FakeVocabulary, numbered, prepared, request, write_corpus

E = EOD
ALL = {"reset_position_ids": True, "document_ids": True, "eod_mask_loss": True}


def part(prefix, split="train"):
    corpus = IndexedDataset(prefix)
    return Part(corpus, "content", split, 0, len(corpus))


def unshuffled(prefix, seq_length):
    """All samples of one epoch, with documents and samples in their order on disk."""
    dataset = build(part(prefix), None, request(seq_length))
    lengths, count = dataset.part.corpus.sequence_lengths, len(dataset)
    order = np.arange(len(lengths))
    sample_index = build_sample_index(lengths, order, count, seq_length)
    dataset.indices = {"document_index": order, "sample_index": sample_index, "shuffle_index": np.arange(count)}
    return dataset


@pytest.mark.parametrize(
    "tokens, positions, documents, mask",
    [
        (
            [5, 6, 7, E, 8, 9, E, E, 4],
            [0, 1, 2, 3, 0, 1, 2, 0, 0],
            [0, 0, 0, 0, 1, 1, 1, 2, 3],
            [1, 1, 1, 0, 1, 1, 0, 0, 1],
        ),
        ([E, 1, 2], [0, 0, 1], [0, 1, 1], [0, 1, 1]),
        ([1, 2, E], [0, 1, 2], [0, 0, 0], [1, 1, 0]),
        ([E, E], [0, 0], [0, 1], [0, 0]),
        ([1, 2], [0, 1], [0, 0], [1, 1]),
    ],
)
@pytest.mark.parametrize("label", [3, E])
def test_document_boundaries(tokens, positions, documents, mask, label):
    sample = assemble(np.array([*tokens, label]), SampleRules(len(tokens), E, **ALL))
    assert sample["tokens"].tolist() == tokens and sample["labels"].tolist() == [*tokens[1:], label]
    assert sample["position_ids"].tolist() == positions
    assert sample["document_ids"].tolist() == documents
    assert sample["loss_mask"].tolist() == mask
    dtypes = {name: str(array.dtype) for name, array in sample.items()}
    assert dtypes == {
        "tokens": "int64",
        "labels": "int64",
        "loss_mask": "float32",
        "position_ids": "int64",
        "document_ids": "int64",
    }


def test_without_flags_documents_do_not_show():
    sample = assemble(np.array([1, E, 2, E]), SampleRules(3, E))
    assert sample["position_ids"].tolist() == [0, 1, 2] and sample["loss_mask"].tolist() == [1, 1, 1]
    assert "document_ids" not in sample


@pytest.mark.parametrize(
    "text, mask, mask_with_eod",
    [
        ([1, 0, 2, 0], [1, 1, 1, 0, 0, 0], [1, 0, 1, 0, 0, 0]),
        ([1], [0] * 6, [0] * 6),
        ([], [0] * 6, [0] * 6),
    ],
)
def test_padding_is_masked_by_place_and_not_by_id(text, mask, mask_with_eod):
    """The tokenizer here ends documents with 0, the id that padding happens to have."""
    assert assemble(np.array(text, np.int64), SampleRules(6, 0))["loss_mask"].tolist() == mask
    sample = assemble(np.array(text, np.int64), SampleRules(6, 0, **ALL))
    assert sample["loss_mask"].tolist() == mask_with_eod
    if len(text) == 4:
        assert sample["document_ids"].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("lengths", [(1, 2, 31, 32, 33, 64), (32,) * 5, (200,), (1,) * 70, (0, 40, 0, 0, 60, 0)])
def test_samples_neither_skip_nor_repeat_a_target(tmp_path, lengths):
    prefix = write_corpus(tmp_path / "c", numbered(lengths))
    dataset = unshuffled(prefix, 32)
    assert len(dataset) == (sum(lengths) - 1) // 32
    for number in range(len(dataset)):
        assert dataset[number]["tokens"].tolist() == list(range(32 * number, 32 * number + 32))
        assert dataset[number]["labels"].tolist() == list(range(32 * number + 1, 32 * number + 33))


@pytest.mark.parametrize("vector", VECTORS["gpt_indices"])
def test_samples_are_the_tokens_that_megatrons_indices_point_at(tmp_path, vector):
    documents = numbered(vector["sizes"])
    prefix = write_corpus(tmp_path / "c", documents)
    length = vector["seq_length"]
    dataset = build(part(prefix), vector["num_samples"], request(length, vector["seed"]))
    stream = [token for document in vector["document_index"] for token in documents[document]]
    assert len(dataset) == len(vector["shuffle_index"])
    for number, sample in zip(vector["shuffle_index"], dataset):
        assert sample["tokens"].tolist() == stream[number * length : number * length + length]


def test_samples_outside_are_an_error(tmp_path):
    dataset = build(part(write_corpus(tmp_path / "c", numbered([10]))), None, request(4))
    for number in (-1, 2):
        with pytest.raises(IndexError, match=f"has 2 samples; asked for number {number}"):
            dataset[number]


@pytest.mark.parametrize("lengths, count", [((5, 5, 5), 80), ((64,), 3), ((65,), 1), ((1,), 2)])
def test_small_corpora_wrap_around(tmp_path, lengths, count):
    dataset = build(part(write_corpus(tmp_path / "c", numbered(lengths))), count, request(64))
    assert len(dataset) >= count and {len(dataset[number]["tokens"]) for number in range(count)} == {64}


@pytest.mark.parametrize(
    "lengths, count, message",
    [
        ((), 5, r"train split of .*c \(sequences 0..0 of 0\) must have at least 1 tokens; it has 0"),
        ((0, 0), 5, "must have at least 1 tokens; it has 0"),
        ((64,), None, "must have at least 65 tokens; it has 64"),
    ],
)
def test_too_few_tokens_are_refused_with_the_numbers(tmp_path, lengths, count, message):
    with pytest.raises(DataError, match=message):
        build(part(write_corpus(tmp_path / "c", numbered(lengths))), count, request(64))


def test_a_corpus_of_floats_is_refused(tmp_path):
    with pytest.raises(DataError, match="token ids must be integers; .*c holds float32"):
        build(part(write_corpus(tmp_path / "c", [[1.0] * 9], "float32")), 1, request(4))


@pytest.mark.parametrize("flag", ["reset_position_ids", "reset_attention_mask", "eod_mask_loss"])
def test_document_flags_need_an_end_of_document_token(tmp_path, flag):
    vocabulary = FakeVocabulary()
    vocabulary.eod = None
    prefix = write_corpus(tmp_path / "c", numbered([30]))
    with pytest.raises(ConfigError, match="need a tokenizer with an end-of-document token; that of this run has none"):
        build(part(prefix), 1, request(4, vocabulary=vocabulary, **{flag: True}))
    assert build(part(prefix), 1, request(4, vocabulary=vocabulary))[0]["loss_mask"].tolist() == [1, 1, 1, 1]


def test_document_flags_reach_the_samples(tmp_path):
    prefix = write_corpus(tmp_path / "c", [[1, E, 2, 3, E]])
    flags = {"reset_position_ids": True, "reset_attention_mask": True, "eod_mask_loss": True}
    sample = build(part(prefix), None, request(4, **flags))[0]
    assert sample["position_ids"].tolist() == [0, 1, 0, 1] and sample["document_ids"].tolist() == [0, 0, 1, 1]
    assert sample["loss_mask"].tolist() == [1, 0, 1, 1]


def test_fingerprint_tells_every_change_of_the_stream(tmp_path):
    prefix = write_corpus(tmp_path / "c", numbered([50, 50]))
    base = build(part(prefix), 10, request(4)).fingerprint
    assert build(part(prefix), 12, request(4)).fingerprint == base  # still one epoch: the same order
    changed = [
        build(part(prefix), 30, request(4)),
        build(part(prefix), 10, request(5)),
        build(part(prefix), 10, request(4, seed=2)),
        build(part(prefix), 10, request(4, eod_mask_loss=True)),
        build(Part(IndexedDataset(prefix), "other", "train", 0, 2), 10, request(4)),
        build(Part(IndexedDataset(prefix), "content", "train", 0, 1), 10, request(4)),
    ]
    assert len({base, *(dataset.fingerprint for dataset in changed)}) == 7


def test_the_log_says_which_path_computes(native_module, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "megalite")
    prefix = write_corpus(tmp_path / "c", numbered([50]))
    prepared(build(part(prefix), 5, request(4)))
    assert "computing the order of samples of the train split of" in caplog.text and "in C++" in caplog.text
    caplog.clear()
    prepared(build(part(prefix), 5, request(4)))
    assert "computing" not in caplog.text  # it comes from the cache
    monkeypatch.setenv("MEGALITE_NATIVE", "0")
    prepared(build(part(prefix), 5, request(4, seed=2)))
    assert "in numpy (the native module is switched off by MEGALITE_NATIVE=0)" in caplog.text


def test_fingerprint_tells_documents_without_tokens(tmp_path):
    corpus = IndexedDataset(write_corpus(tmp_path / "c", numbered([0, 50])))
    with_and_without = [build(Part(corpus, "content", "train", begin, 2), 5, request(4)) for begin in (0, 1)]
    assert [len(dataset.indices["document_index"]) for dataset in with_and_without] == [2, 1]
    assert with_and_without[0].fingerprint != with_and_without[1].fingerprint


def test_start_up_report(tmp_path, caplog):
    caplog.set_level(logging.INFO, "megalite")
    prefix = write_corpus(tmp_path / "c", numbered([50, 51]))
    build_datasets(request(10, data_path=(prefix,), split="100"), Wanted(25)).prepare()
    text = caplog.text
    assert "sequences 0..2 of 2): 101 tokens, 10 samples of 10 an epoch; 25 wanted: 3 epochs" in text
    assert "warning: the train split" in text and "is read 2.5 times over to give 25 samples of 10 tokens" in text
    caplog.clear()
    build_datasets(request(10, data_path=(prefix,), split="100"), Wanted(10)).prepare()
    assert "10 wanted: 1 epoch" in caplog.text and "warning" not in caplog.text
