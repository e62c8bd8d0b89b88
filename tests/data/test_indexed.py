import pickle
import struct

import numpy as np
import pytest

from megalite.data.indexed import DTYPES, IndexedDataset, optimal_dtype, pointers
from megalite.errors import DataError
from tests.data.corpora import VECTORS, numbered, write_corpus

DOCUMENTS = numbered([3, 2, 4])


@pytest.fixture
def prefix(tmp_path):
    return write_corpus(tmp_path / "corpus", DOCUMENTS)


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("name", VECTORS["indexed_dataset_files"])
def test_reads_what_megatron_wrote(tmp_path, name):
    vector = VECTORS["indexed_dataset_files"][name]
    (tmp_path / "m.bin").write_bytes(bytes.fromhex(vector["bin_hex"]))
    (tmp_path / "m.idx").write_bytes(bytes.fromhex(vector["idx_hex"]))
    dataset = IndexedDataset(tmp_path / "m")
    assert [sequence.tolist() for sequence in dataset] == [[5, 6, 7], [8, 9], [1, 2, 3, 4]]
    assert dataset.dtype == vector["dtype"] and len(dataset) == vector["len"] and dataset.num_documents == 3
    assert dataset.sequence_lengths.tolist() == vector["lengths"]
    assert dataset.document_indices.tolist() == vector["document_indices"]
    assert (dataset.sequence_modes is not None) == vector["multimodal"]
    if vector["multimodal"]:
        assert dataset.sequence_modes.tolist() == [0, 1, 0]
    dataset.validate()


def test_dtype_codes_are_the_formats():
    names = "uint8 int8 int16 int32 int64 float64 float32 uint16".split()
    assert [DTYPES[code].name for code in range(1, 9)] == names


@pytest.mark.parametrize("vocab_size, dtype", [(65499, "uint16"), (65500, "int32"), (65535, "int32"), (65537, "int32")])
def test_highest_id_survives_at_every_dtype_boundary(tmp_path, vocab_size, dtype):
    assert optimal_dtype(vocab_size) == dtype
    prefix = write_corpus(tmp_path / "c", [[0, vocab_size - 1]], optimal_dtype(vocab_size))
    assert IndexedDataset(prefix)[0].tolist() == [0, vocab_size - 1]


def test_pointers_do_not_wrap_at_two_gigabytes():
    result = pointers(np.array([2**30] * 3, np.int32), 2)
    assert result.tolist() == [0, 2**31, 2**32] and result.dtype == np.int64


def test_get_reads_a_part(prefix):
    dataset = IndexedDataset(prefix)
    assert dataset.get(2, 1, 2).tolist() == [6, 7]
    assert dataset.get(2, 3).tolist() == [8]
    assert dataset.get(-1, 4).tolist() == []
    assert [dataset.num_tokens(*bounds) for bounds in ((0, 3), (0, 1), (1, 3), (3, 3))] == [9, 3, 6, 0]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((3,), "has 3 sequences; asked for number 3"),
        ((-4,), "has 3 sequences"),
        ((0, 2, 2), "has 3 tokens; asked for 2 from 2 on"),
        ((0, -1, 1), "asked for 1 from -1 on"),
    ],
)
def test_get_outside_is_an_error(prefix, arguments, message):
    with pytest.raises(IndexError, match=message):
        IndexedDataset(prefix).get(*arguments)


def test_survives_pickling(prefix):
    copy = pickle.loads(pickle.dumps(IndexedDataset(prefix)))
    assert [sequence.tolist() for sequence in copy] == DOCUMENTS


def test_tokens_are_views_of_the_file(prefix):
    sequence = IndexedDataset(prefix)[0]
    assert not sequence.flags.owndata and not sequence.flags.writeable


def test_an_empty_corpus_can_be_opened(tmp_path):
    dataset = IndexedDataset(write_corpus(tmp_path / "c", []))
    assert len(dataset) == 0 and dataset.num_documents == 0 and dataset.num_tokens(0, 0) == 0
    dataset.validate()


@pytest.mark.parametrize(
    "offset, data, message",
    [
        (0, b"MXIDIDX", r"must start with b'MMIDIDX\\x00\\x00'; it starts with b'MXIDIDX"),
        (
            9,
            struct.pack(">Q", 1),
            r"must be of version 1; it says 72057594037927936: it is damaged, or was written on a big-endian",
        ),
        (17, b"\x09", r"dtype code from 1 to 8; it says 9"),
        (18, struct.pack("<Q", 4), r"must hold 114 bytes for its 4 sequences and 4 document indices; it holds 102"),
        (18, struct.pack("<Q", 2**60), r"it holds 102"),
        (
            94,
            struct.pack("<q", 7),
            r"document indices must run from 0 to the number of sequences, 3; they run from 0 to 7",
        ),
        (70, struct.pack("<q", 1), r"document indices must run .* they run from 1 to 3"),
        (
            42,
            struct.pack("<i", 5),
            r"c.*\.bin \(18 bytes\) must describe the same tokens; the index speaks of 20 bytes",
        ),
        (62, struct.pack("<q", 4), r"the index speaks of 12 bytes"),
    ],
)
def test_a_damaged_index_is_refused_at_open(prefix, offset, data, message):
    patch(prefix + ".idx", offset, data)
    with pytest.raises(DataError, match=message):
        IndexedDataset(prefix)


@pytest.mark.parametrize(
    "size, message", [(0, "at least 34 bytes; it holds 0"), (33, "it holds 33"), (101, "it holds 101")]
)
def test_an_index_cut_short_is_refused(prefix, size, message):
    with open(prefix + ".idx", "r+b") as file:
        file.truncate(size)
    with pytest.raises(DataError, match=message):
        IndexedDataset(prefix)


@pytest.mark.parametrize("size", [0, 16, 20])
def test_tokens_of_another_length_than_the_index_says_are_refused(prefix, size):
    with open(prefix + ".bin", "r+b") as file:
        file.truncate(size)
    with pytest.raises(
        DataError, match=rf"corpus\.idx and .*corpus\.bin \({size} bytes\) .* the index speaks of 18 bytes"
    ):
        IndexedDataset(prefix)


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_a_missing_file_is_named(tmp_path, prefix, suffix):
    (tmp_path / f"corpus.{suffix}").unlink()
    with pytest.raises(DataError, match=rf"corpus\.{suffix} must exist"):
        IndexedDataset(prefix)


@pytest.mark.parametrize(
    "offset, data, message",
    [
        (34, struct.pack("<i", -3), "sequence 0 has length -3"),
        (54, struct.pack("<q", 8), "sequence 1 must start at byte 6, the index says 8"),
        (78, struct.pack("<q", 3), "document 2 starts before document 1"),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 1 << 20])
def test_validate_finds_damage_in_the_middle(prefix, monkeypatch, offset, data, message, piece):
    monkeypatch.setattr("megalite.data.indexed._PIECE", piece)
    IndexedDataset(prefix).validate()
    patch(prefix + ".idx", offset, data)
    with pytest.raises(DataError, match=message):
        IndexedDataset(prefix).validate()


def test_a_wild_pointer_is_an_error_and_not_a_crash(prefix):
    patch(prefix + ".idx", 54, struct.pack("<q", 2**50))
    with pytest.raises(DataError, match="sequence 1 lies at bytes 1125899906842624"):
        IndexedDataset(prefix)[1]
