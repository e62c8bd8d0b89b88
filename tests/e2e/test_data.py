"""Corpora that are small, wrong or damaged, met by a whole run."""

import shutil

import pytest

from megalite.errors import DataError
from tests.data.corpora import numbered, write_corpus
from tests.e2e.launch import curve, flags, trained
from tests.harness import WorkerFailed


def test_a_corpus_shorter_than_a_sample_is_read_again_and_again(tmp_path, capfd):
    prefix = write_corpus(tmp_path / "small", numbered([5, 5, 5]))
    trained(2, flags(data_path=prefix, split="1", metrics_file=tmp_path / "metrics.jsonl"))
    assert list(curve(tmp_path / "metrics.jsonl")) == list(range(1, 11))
    assert "warning: the train split of " in capfd.readouterr().out


def test_an_empty_share_for_training_is_refused_with_its_numbers(corpus, failing):
    error = failing(DataError, flags(data_path=corpus, split="0.001,99,0"))
    assert "train split of" in error and "must have at least 1 tokens; it has 0" in error


@pytest.mark.parametrize("layout", [{}, {"tensor_model_parallel_size": 2}], ids=["tensor 1", "tensor 2"])
def test_ids_outside_the_vocabulary_are_refused(tmp_path, layout):
    """Of a corpus that nothing is recorded beside; a tensor-parallel embedding would find them on no rank."""
    prefix = write_corpus(tmp_path / "foreign", numbered([60, 40]))
    with pytest.raises(WorkerFailed, match=r"DataError: token ids must be in \[0, 51\), the vocabulary; given "):
        trained(2, flags(data_path=prefix, split="1", vocab_size=50, **layout))


def test_the_tokenizer_of_another_corpus_is_refused(corpus, failing):
    error = failing(DataError, flags(data_path=corpus, vocab_size=64))
    assert "must be read with the tokenizer that wrote it, which has vocabulary size 101 (now 65)" in error


def test_a_corpus_cut_short_is_refused(corpus, tmp_path, failing):
    for suffix in (".bin", ".idx", ".json"):
        shutil.copy(corpus + suffix, tmp_path / f"cut{suffix}")
    with open(tmp_path / "cut.bin", "r+b") as file:
        file.truncate(1000)
    error = failing(DataError, flags(data_path=tmp_path / "cut"))
    assert "cut.bin" in error and "1000" in error
