import json
import tracemalloc

import numpy as np
import pytest

from megalite.data.indexed import IndexedDataset
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.merge import MergeOptions, find_corpora, main, merge_datasets
from megalite.data.sidecar import Sidecar, read_sidecar
from megalite.errors import DataError
from tests.data.corpora import write_corpus

SIDECAR = Sidecar("abc", 100, 99, True, summary={"text_bytes": 8, "json_key": "text"})


def merge(output, *inputs):
    merge_datasets(MergeOptions(input=tuple(map(str, inputs)), output_prefix=str(output)))
    dataset = IndexedDataset(str(output))
    dataset.validate()
    return dataset


def test_a_directory_is_merged_in_the_order_of_names(tmp_path):
    documents = {"b": [[1, 2], [], [3]], "a": [[]], "c": [], "a_2": [[4], [5, 6, 7]]}
    for name, content in documents.items():
        write_corpus(tmp_path / "parts" / name, content)
    merge(tmp_path / "new" / "all", tmp_path / "parts")
    write_corpus(tmp_path / "whole", documents["a"] + documents["a_2"] + documents["b"] + documents["c"])
    for suffix in ("bin", "idx"):
        assert (tmp_path / "new" / f"all.{suffix}").read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()
    assert not (tmp_path / "new" / "all.json").exists()


def test_prefixes_keep_their_order_and_documents_their_borders(tmp_path):
    write_corpus(tmp_path / "b", [[1]])
    with IndexedDatasetBuilder(tmp_path / "a", "uint16") as builder:
        builder.add_document([2, 3, 4], [1, 2])
        builder.add_document([], [])
        builder.finalize()
    dataset = merge(tmp_path / "out", tmp_path / "b", tmp_path / "a", tmp_path / "b")
    assert dataset.document_indices.tolist() == [0, 1, 3, 3, 4]
    assert [sequence.tolist() for sequence in dataset] == [[1], [2], [3, 4], [1]]


@pytest.mark.parametrize(
    "dtypes, expected",
    [
        (("uint16", "int32"), "int32"),
        (("uint8", "uint16"), "uint16"),
        (("int16", "uint16"), "int32"),
        (("uint16", "int64"), "int64"),
    ],
)
def test_ids_of_different_dtypes_become_the_narrowest_that_holds_all(tmp_path, dtypes, expected):
    highest = [np.iinfo(dtype).max for dtype in dtypes]
    for number, dtype in enumerate(dtypes):
        write_corpus(tmp_path / "parts" / str(number), [[0, highest[number]]], dtype)
    dataset = merge(tmp_path / "out", tmp_path / "parts")
    assert dataset.dtype.name == expected
    assert [sequence.tolist() for sequence in dataset] == [[0, value] for value in highest]


def test_numbers_that_are_no_ids_are_merged_with_their_like_only(tmp_path):
    write_corpus(tmp_path / "a", [[0.5]], "float32")
    write_corpus(tmp_path / "b", [[1]])
    assert merge(tmp_path / "out", tmp_path / "a", tmp_path / "a").dtype.name == "float32"
    with pytest.raises(DataError, match="must all hold integers, .*a has float32, .*b has uint16"):
        merge(tmp_path / "out", tmp_path / "a", tmp_path / "b")


def test_multimodal_corpora(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "m", "int32", multimodal=True) as builder:
        builder.add_document([1, 2, 3], [2, 1], [0, 1])
        builder.finalize()
    main(
        ["--input", str(tmp_path / "m"), str(tmp_path / "m"), "--output-prefix", str(tmp_path / "out"), "--multimodal"]
    )
    assert IndexedDataset(tmp_path / "out").sequence_modes.tolist() == [0, 1, 0, 1]
    write_corpus(tmp_path / "plain", [[1]], "int32")
    with pytest.raises(DataError, match="must all be multimodal or none"):
        merge(tmp_path / "mixed", tmp_path / "m", tmp_path / "plain")


def test_what_the_parts_say_of_themselves_is_added_up(tmp_path):
    write_corpus(tmp_path / "a", [[1, 99], [2, 3, 99]], sidecar=SIDECAR)
    write_corpus(tmp_path / "b", [[4, 99]], sidecar=SIDECAR)
    merge(tmp_path / "out", tmp_path / "a", tmp_path / "b")
    merged = read_sidecar(str(tmp_path / "out"))
    assert (merged.tokenizer, merged.vocab_size, merged.eod, merged.append_eod) == ("abc", 100, 99, True)
    assert (merged.num_documents, merged.num_tokens) == (3, 7)
    assert merged.summary == {"merged_corpora": 2, "text_bytes": 16, "tokens_per_byte": 0.4375}


@pytest.mark.parametrize(
    "other, message",
    [
        (Sidecar("xyz", 100, 99, True), "one tokenizer; .*a and .*b have tokenizer abc and xyz: tokenize"),
        (Sidecar("abc", 101, 98, True), "have vocab_size 100 and 101, eod 99 and 98"),
        (Sidecar("abc", 100, 99, False), "have append_eod True and False"),
        (None, r"which tokenizer made them, or none; .*a.json does, and there is no .*b.json"),
    ],
)
def test_corpora_of_different_tokenizers_are_refused(tmp_path, other, message):
    for prefixes in (("a", "b"), ("b", "a")):
        write_corpus(tmp_path / "a", [[1, 99]], sidecar=SIDECAR)
        write_corpus(tmp_path / "b", [[4, 99]], sidecar=other)
        if prefixes == ("a", "b"):
            with pytest.raises(DataError, match=message):
                merge(tmp_path / "out", *(tmp_path / name for name in prefixes))
        else:
            with pytest.raises(DataError, match="corpora to merge must"):
                merge(tmp_path / "out", *(tmp_path / name for name in prefixes))
    assert not (tmp_path / "out.bin").exists()


def test_a_damaged_part_leaves_nothing(tmp_path):
    write_corpus(tmp_path / "a", [[1, 2]])
    write_corpus(tmp_path / "b", [[3], [4]])
    content = bytearray((tmp_path / "b.idx").read_bytes())
    content[42:50] = (2).to_bytes(8, "little")  # the first sequence starts at the second
    (tmp_path / "b.idx").write_bytes(content)
    with pytest.raises(DataError, match="sequence 0 must start at byte 0"):
        merge(tmp_path / "out", tmp_path / "a", tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.idx", "b.bin", "b.idx"]


def test_the_result_is_not_one_of_the_parts(tmp_path):
    write_corpus(tmp_path / "a", [[1, 2]])
    with pytest.raises(DataError, match="--output-prefix must not be one of the corpora to merge"):
        merge(tmp_path / "x" / ".." / "a", tmp_path)
    assert IndexedDataset(tmp_path / "a")[0].tolist() == [1, 2]


@pytest.mark.parametrize("missing", ["bin", "idx"])
def test_half_a_corpus_is_named(tmp_path, missing):
    write_corpus(tmp_path / "a", [[1]])
    (tmp_path / f"a.{missing}").unlink()
    with pytest.raises(DataError, match=rf"pairs of .bin and .idx files; there is no .*a\.{missing}"):
        find_corpora([str(tmp_path)])


def test_nothing_to_merge(tmp_path):
    with pytest.raises(DataError, match="must hold .bin and .idx files; it holds none"):
        find_corpora([str(tmp_path)])
    with pytest.raises(DataError, match="there is no none.bin"):
        find_corpora(["none"])


def test_memory_is_constant(tmp_path):
    """A million documents, whose index alone is 20 MB."""
    ids, ones = np.ones(20_000, np.int32), np.ones(20_000, np.int32)
    for number in range(50):
        with IndexedDatasetBuilder(tmp_path / "parts" / f"{number:02}", "int32") as builder:
            builder.add_documents(ids, ones, ones)
            builder.finalize()
    tracemalloc.start()
    merge_datasets(MergeOptions(input=(str(tmp_path / "parts"),), output_prefix=str(tmp_path / "out")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert IndexedDataset(tmp_path / "out").num_documents == 1_000_000
    assert peak < 12 << 20


def test_the_summary_is_json(tmp_path):
    write_corpus(tmp_path / "a", [[1, 99]], sidecar=Sidecar("abc", 100, 99, True))
    merge(tmp_path / "out", tmp_path / "a")
    assert json.loads((tmp_path / "out.json").read_text())["summary"] == {"merged_corpora": 1}
