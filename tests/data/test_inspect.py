import dataclasses
import json
import struct

import pytest

from megalite.data.indexed import IndexedDataset
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.inspect import document_lengths, main
from megalite.data.sidecar import Sidecar, read_sidecar, write_sidecar
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import DataError
from tests.data.corpora import write_corpus
from tests.data.tokenizers.samples import MULTILINGUAL, byte_level_bpe

EOD = 99
SIDECAR = Sidecar("0123456789abcdefX", 100, EOD, True, summary={"json_key": "text"})
DOCUMENTS = [[1, 2, 3, EOD], [], [4, EOD], [5, 6, 7, 8, EOD], []]


@pytest.fixture
def prefix(tmp_path):
    return write_corpus(tmp_path / "c", DOCUMENTS, sidecar=SIDECAR)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("megalite.data.inspect.CHUNK", 2)


def shown(capsys, *arguments):
    main([*map(str, arguments)])
    return capsys.readouterr().out.rstrip("\n").split("\n")


def test_statistics(prefix, capsys):
    assert shown(capsys, prefix) == [
        f"{prefix}: 5 documents, 5 sequences, 11 tokens (uint16, 22 bytes)",
        "tokens a document: 0 to 5, mean 2.2, median 2, 99 % have at most 4; 2 documents are empty",
        "made by the tokenizer 0123456789abcdef of 100 ids; every document ends with 99",
        '  json_key: "text"',
    ]


def test_a_corpus_of_another_program(tmp_path, capsys):
    with IndexedDatasetBuilder(tmp_path / "c", "int32", multimodal=True) as builder:
        builder.add_document([1, 2, 3], [2, 1], [0, 1])
        builder.finalize()
    lines = shown(capsys, tmp_path / "c", "--document", 0, "--check")
    assert lines[0].endswith("c: 1 documents, 2 sequences, 3 tokens (int32, 12 bytes)")
    assert lines[2:4] == ["sequences by mode: 0: 1, 1: 1", "no .json beside it: which tokenizer made it is not known"]
    assert lines[4:7] == ["document 0: 2 sequences, 3 tokens", "  0: [1, 2]", "  1: [3]"]
    assert lines[7].endswith("all ids are not negative (the vocabulary is not known)")


def test_an_empty_corpus(tmp_path, capsys):
    lines = shown(capsys, write_corpus(tmp_path / "c", [], sidecar=SIDECAR), "--check")
    assert "0 documents, 0 sequences, 0 tokens" in lines[0] and lines[-1].startswith("intact")


def test_documents_as_ids_and_from_the_end(prefix, capsys):
    lines = shown(capsys, prefix, "--document", 2, 1, -2)
    assert lines[4:] == [
        "document 2: 1 sequences, 2 tokens", "  2: [4, 99]",
        "document 1: 1 sequences, 0 tokens", "  1: []",
        "document 3: 1 sequences, 5 tokens", "  3: [5, 6, 7, 8, 99]",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [5, -6])
def test_a_document_that_is_not_there(prefix, number):
    with pytest.raises(DataError, match=f"--document must be below 5, the number of documents; given {number}"):
        main([prefix, "--document", str(number)])


def test_documents_as_text(tmp_path, capsys):
    model = byte_level_bpe(tmp_path)
    tokenizer = build_tokenizer(TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(model)))
    sidecar = Sidecar(tokenizer.fingerprint, tokenizer.vocab_size, tokenizer.eod, False)
    prefix = write_corpus(tmp_path / "c", [tokenizer.encode(text) for text in MULTILINGUAL], sidecar=sidecar)
    flags = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", model]
    numbers = range(len(MULTILINGUAL))
    lines = shown(capsys, prefix, *flags, "--check", "--document", *numbers)
    decoded = [json.loads(line.partition(": ")[2]) for line in lines if line.startswith("  ")]
    assert decoded[-len(MULTILINGUAL) :] == MULTILINGUAL
    write_sidecar(prefix, dataclasses.replace(sidecar, tokenizer="other"))
    with pytest.raises(DataError, match="must be read with the tokenizer that wrote it.*fingerprint other"):
        main([prefix, *map(str, flags)])


def test_lengths_of_documents_of_several_sequences(tmp_path):
    with IndexedDatasetBuilder(tmp_path / "c", "int32") as builder:
        for lengths in ([2, 1], [], [4]):
            builder.add_document(list(range(sum(lengths))), lengths)
        builder.finalize()
    assert document_lengths(IndexedDataset(tmp_path / "c")).tolist() == [3, 0, 4]


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def test_an_intact_corpus(prefix, capsys, small_chunks):
    assert (
        shown(capsys, prefix, "--check")[-1]
        == "intact: lengths, offsets and documents fit the files, and all ids are below 100"
    )


@pytest.mark.parametrize(
    "suffix, offset, data, message",
    [
        ("idx", 38, struct.pack("<i", -1), "sequence 1 has length -1"),
        ("idx", 62, struct.pack("<q", 6), "sequence 1 must start at byte 8, the index says 6"),
        ("idx", 102, struct.pack("<q", 4), "document 2 starts before document 1"),
        ("bin", 14, struct.pack("<H", 100), r"must be 0 to 99; token 1 of sequence 3 is 100"),
        ("bin", 0, struct.pack("<H", 65535), r"token 0 of sequence 0 is 65535"),
        ("bin", 20, struct.pack("<H", 98), r"every document of .*c must end with 99.*document 3 ends with 98"),
    ],
)
def test_damage_is_found_and_placed(prefix, small_chunks, suffix, offset, data, message):
    patch(f"{prefix}.{suffix}", offset, data)
    with pytest.raises(DataError, match=message):
        main([prefix, "--check"])


def test_negative_ids_are_found_without_a_vocabulary(tmp_path):
    prefix = write_corpus(tmp_path / "c", [[1, 2], [3]], "int32")
    patch(f"{prefix}.bin", 8, struct.pack("<i", -5))
    with pytest.raises(DataError, match="must be 0 or more; token 0 of sequence 1 is -5"):
        main([prefix, "--check"])


@pytest.mark.parametrize("name, count", [("num_documents", 6), ("num_tokens", 12)])
def test_a_description_of_another_corpus(prefix, name, count):
    write_sidecar(prefix, dataclasses.replace(read_sidecar(prefix), **{name: count}))
    with pytest.raises(DataError, match=f"it says {name} {count}, the corpus has {count - 1}"):
        main([prefix, "--check"])
