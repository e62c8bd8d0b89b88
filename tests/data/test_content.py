import shutil

import numpy as np
import pytest

from megalite.data.content import content_fingerprint
from megalite.data.indexed import IndexedDataset
from tests.data.corpora import write_corpus

DOCUMENTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


def fingerprint(prefix):
    return content_fingerprint(IndexedDataset(prefix))


def test_the_fingerprint_is_of_the_content_and_not_of_the_place(tmp_path):
    first = fingerprint(write_corpus(tmp_path / "a", DOCUMENTS))
    assert fingerprint(write_corpus(tmp_path / "elsewhere" / "b", DOCUMENTS)) == first
    for suffix in ("bin", "idx"):
        shutil.copy(tmp_path / f"a.{suffix}", tmp_path / f"copy.{suffix}")
    assert fingerprint(str(tmp_path / "copy")) == first


@pytest.mark.parametrize(
    "documents, dtype",
    [
        ([[1, 2, 3], [4, 5], [6, 7, 8, 0]], "uint16"),
        ([[1, 2, 3, 4], [5], [6, 7, 8, 9]], "uint16"),
        ([[1, 2, 3], [4, 5], [6, 7, 8]], "uint16"),
        (DOCUMENTS, "int32"),
        ([], "uint16"),
    ],
)
def test_the_fingerprint_tells_data_rewritten_in_place(tmp_path, documents, dtype):
    before = fingerprint(write_corpus(tmp_path / "a", DOCUMENTS))
    assert fingerprint(write_corpus(tmp_path / "a", documents, dtype)) != before


def test_large_corpora_are_sampled_all_over(tmp_path):
    """Beyond 16 blocks of tokens a shift by one anywhere still changes most sampled blocks."""
    tokens = np.random.default_rng(0).integers(0, 60_000, 400_000)
    before = fingerprint(write_corpus(tmp_path / "a", [tokens]))
    moved = np.concatenate([tokens[:200_000], tokens[200_001:], tokens[:1]])
    assert fingerprint(write_corpus(tmp_path / "a", [moved])) != before
