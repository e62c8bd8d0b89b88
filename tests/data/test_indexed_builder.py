import io
import os
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from megalite.data.indexed import IndexedDataset
from megalite.data.indexed_builder import IndexedDatasetBuilder, Mark, _write_pointers
from megalite.data.sidecar import Sidecar, read_sidecar
from megalite.errors import DataError
from tests.data.corpora import VECTORS, write_corpus


@pytest.mark.parametrize("name", VECTORS["indexed_dataset_files"])
def test_writes_what_megatron_writes(tmp_path, name):
    vector = VECTORS["indexed_dataset_files"][name]
    with IndexedDatasetBuilder(tmp_path / "m", vector["dtype"], vector["multimodal"]) as builder:
        builder.add_document([5, 6, 7, 8, 9], [3, 2], [0, 1] if vector["multimodal"] else None)
        builder.add_document([], [])
        builder.add_item([1, 2, 3, 4])
        builder.end_document()
        builder.finalize()
    assert (tmp_path / "m.bin").read_bytes().hex() == vector["bin_hex"]
    assert (tmp_path / "m.idx").read_bytes().hex() == vector["idx_hex"]
    assert sorted(os.listdir(tmp_path)) == ["m.bin", "m.idx"]


def test_many_documents_at_once_equal_one_by_one(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "a", "int32") as builder:
        builder.add_document([1], [1])
        builder.add_documents(np.arange(9), np.array([3, 2, 4], np.int32), np.array([2, 0, 1], np.int32))
        builder.finalize()
    with IndexedDatasetBuilder(tmp_path / "b", "int32") as builder:
        builder.add_document([1], [1])
        builder.add_document([0, 1, 2, 3, 4], [3, 2])
        builder.add_document([], [])
        builder.add_document([5, 6, 7, 8], [4])
        builder.finalize()
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_finalize_closes_an_open_document(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "c", "int32") as builder:
        for sequence in ([1, 2], [3], [4, 5, 6]):
            builder.add_item(sequence)
        builder.finalize()
    dataset = IndexedDataset(tmp_path / "c")
    assert dataset.document_indices.tolist() == [0, 3] and [s.tolist() for s in dataset] == [[1, 2], [3], [4, 5, 6]]


@pytest.mark.parametrize(
    "dtype, ids, message",
    [
        ("uint16", [1, 65536], r"must lie in 0..65535 to be stored as uint16; given 65536"),
        ("uint16", [70000, -1], r"given -1"),
        ("int32", [2**31], r"must lie in 0..2147483647 to be stored as int32; given 2147483648"),
        ("int32", [-1], r"given -1"),
        ("int64", np.array([2**63], np.uint64), r"given 9223372036854775808"),
        ("int32", [1.0], r"must be integers; given float64"),
    ],
)
def test_ids_that_do_not_fit_are_refused(tmp_path, dtype, ids, message):
    with IndexedDatasetBuilder(tmp_path / "c", dtype) as builder:
        with pytest.raises(DataError, match=message):
            builder.add_item(ids)


def test_unknown_dtype_is_refused(tmp_path):
    with pytest.raises(DataError, match="must be one of uint8, .* given uint32"):
        IndexedDatasetBuilder(tmp_path / "c", "uint32")


def test_lengths_must_sum_to_the_tokens(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "c", "int32") as builder:
        with pytest.raises(DataError, match=r"must sum to its 3 tokens; given \[1, 1\]"):
            builder.add_document([1, 2, 3], [1, 1])
        with pytest.raises(DataError, match="lengths of 2 sequences must sum to the 3 tokens"):
            builder.add_documents(np.arange(3), np.array([1, 1], np.int32), np.array([2], np.int32))


def test_offsets_do_not_wrap_at_two_gigabytes():
    lengths, offsets = io.BytesIO(np.array([2**30] * 3, "<i4").tobytes()), io.BytesIO()
    _write_pointers(lengths, 2, offsets)
    assert np.frombuffer(offsets.getvalue(), "<i8").tolist() == [0, 2**31, 2**32]


def test_merging_appends_whole_corpora(tmp_path):
    first = write_corpus(tmp_path / "a", [[1, 2], [], [3]])
    second = write_corpus(tmp_path / "b", [[4], [5, 6, 7]])
    with IndexedDatasetBuilder(tmp_path / "ab", "uint16") as builder:
        builder.add_index(first)
        builder.add_index(second)
        builder.finalize()
    write_corpus(tmp_path / "whole", [[1, 2], [], [3], [4], [5, 6, 7]])
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"ab.{suffix}").read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()


def test_merging_widens_ids(tmp_path, monkeypatch):
    monkeypatch.setattr("megalite.data.indexed_builder._COPY_BYTES", 4)  # two ids of the first at a time
    narrow = write_corpus(tmp_path / "a", [[1, 65535, 3, 4, 5], [6]])
    wide = write_corpus(tmp_path / "b", [[70000, 2]], "int32")
    with IndexedDatasetBuilder(tmp_path / "ab", "int32") as builder:
        builder.add_index(narrow)
        builder.add_index(wide)
        builder.finalize()
    merged = IndexedDataset(tmp_path / "ab")
    merged.validate()
    assert [sequence.tolist() for sequence in merged] == [[1, 65535, 3, 4, 5], [6], [70000, 2]]


def test_merging_refuses_what_differs_in_kind(tmp_path):
    other = write_corpus(tmp_path / "a", [[1]], "int32")
    with IndexedDatasetBuilder(tmp_path / "b", "uint16") as builder:
        with pytest.raises(
            DataError, match="must hold all ids of its parts: .*a has int32, .*b has uint16: choose a wider"
        ):
            builder.add_index(other)
    with IndexedDatasetBuilder(tmp_path / "c", "int32", multimodal=True) as builder:
        with pytest.raises(DataError, match="all be multimodal or none"):
            builder.add_index(other)


def test_sidecar_gets_the_counts(tmp_path):
    sidecar = Sidecar(tokenizer="f", vocab_size=8, eod=7, append_eod=True)
    prefix = write_corpus(tmp_path / "c", [[1, 7], [2, 3, 7]], sidecar=sidecar)
    stored = read_sidecar(prefix)
    assert (stored.num_documents, stored.num_tokens, stored.eod) == (2, 5, 7)


def test_a_failed_block_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with IndexedDatasetBuilder(tmp_path / "c", "int32") as builder:
            builder.add_item([1, 2])
            raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
from megalite.data.indexed_builder import IndexedDatasetBuilder, Mark, _write_pointers
builder = IndexedDatasetBuilder(sys.argv[1], "int32")
for i in range(100_000):
    builder.add_document([i, i], [2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_nothing_that_looks_whole_and_blocks_nobody(tmp_path):
    old = write_corpus(tmp_path / "old", [[1, 2, 3]], "int32")
    for name in ("old", "new"):
        status = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)]).returncode
        assert status == -signal.SIGKILL
    assert IndexedDataset(old)[0].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match=r"new\.idx must exist"):
        IndexedDataset(tmp_path / "new")
    assert IndexedDataset(write_corpus(tmp_path / "new", [[5]]))[0].tolist() == [5]
    assert not (tmp_path / "new.bin.partial").exists()


def test_a_second_writer_of_a_prefix_is_refused(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "c", "int32") as first:
        with pytest.raises(DataError, match=r"c\.bin\.partial must have one writer"):
            IndexedDatasetBuilder(tmp_path / "c", "int32")
        first.add_item([1])
        first.finalize()
    assert IndexedDataset(tmp_path / "c")[0].tolist() == [1]


def test_rewriting_replaces_the_corpus_and_its_description(tmp_path):
    write_corpus(tmp_path / "c", [[1, 2, 3]], sidecar=Sidecar("f", 8, None, False))
    prefix = write_corpus(tmp_path / "c", [[4]])
    assert IndexedDataset(prefix)[0].tolist() == [4] and read_sidecar(prefix) is None


def test_memory_is_a_few_bytes_per_document(tmp_path):
    count = 50_000
    tracemalloc.start()
    with IndexedDatasetBuilder(tmp_path / "c", "int32") as builder:
        for _ in range(count):
            builder.add_document([1, 2, 3], [3])
        written = tracemalloc.get_traced_memory()[0]
        builder.finalize()
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 12 bytes a document while writing (arrays grow by an eighth at a time), as much again and the offsets at the end;
    # the buffer of the file comes on top.
    assert written < 16 * count + (1 << 21) and peak < 64 * count + (1 << 21)


def test_another_builder_goes_on_from_a_mark(tmp_path):
    def add(builder, *documents):
        for document in documents:
            builder.add_document(document, [1, len(document) - 1])

    with IndexedDatasetBuilder(tmp_path / "whole", "uint16") as builder:
        add(builder, [1, 2, 3], [4, 5], [6, 7])
        builder.finalize()
    with IndexedDatasetBuilder(tmp_path / "parts", "uint16") as builder:
        add(builder, [1, 2, 3])
        mark = builder.sync()
        add(builder, [8, 9])
        builder.suspend()
    assert mark == Mark(num_tokens=3, num_sequences=2, num_documents=1)
    with IndexedDatasetBuilder(tmp_path / "parts", "uint16", resume=mark) as builder:
        add(builder, [4, 5], [6, 7])
        assert (builder.num_documents, builder.num_tokens) == (3, 7)
        builder.finalize()
    for kind in ("bin", "idx"):
        assert (tmp_path / f"parts.{kind}").read_bytes() == (tmp_path / f"whole.{kind}").read_bytes()
    assert not list(tmp_path.glob("*.partial"))


def test_a_mark_that_the_files_do_not_reach(tmp_path):
    with pytest.raises(
        DataError, match=r"c.bin.partial must hold at least the 6 bytes .* it holds 0: remove the record"
    ):
        IndexedDatasetBuilder(tmp_path / "c", "uint16", resume=Mark(3, 1, 1))


class Long:
    """As many tokens as a document of some gigabytes has."""

    def __len__(self):
        return 1 << 31


def test_a_sequence_whose_length_does_not_fit_is_refused_and_not_made_negative(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "c", np.uint8) as builder:
        for add in (
            lambda: builder.add_item(Long()),
            lambda: builder.add_document(Long(), [1 << 31]),
            lambda: builder.add_documents(Long(), np.array([1 << 31]), np.array([1])),
        ):
            with pytest.raises(DataError, match="at most 2147483647 tokens, .*; given 2147483648: divide the document"):
                add()
