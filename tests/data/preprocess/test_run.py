import gzip
import json
import random
from pathlib import Path

import pytest
from tokenizers import processors

from megalite.data.indexed import IndexedDataset
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.preprocess.inputs import BLOCK_BYTES
from megalite.data.preprocess.options import PreprocessOptions
from megalite.data.preprocess.output import Output
from megalite.data.preprocess.run import preprocess
from megalite.data.sidecar import check_tokenizer, read_sidecar
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import ConfigError, DataError, TokenizerError
from megalite.log import logger
from tests.data.tokenizers.samples import MULTILINGUAL, byte_level_bpe, word_level


def ids(vocab_size: int) -> TokenizerOptions:
    return TokenizerOptions(tokenizer_type="NullTokenizer", vocab_size=vocab_size)


def options(directory: Path, *inputs: Path, **fields) -> PreprocessOptions:
    fields.setdefault("tokenizer", ids(100))
    fields.setdefault("workers", 1)
    return PreprocessOptions(input=tuple(map(str, inputs)), output_prefix=str(directory / "out"), **fields)


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def documents_of(prefix: Path) -> list[list[list[int]]]:
    """Sequences of each document of a corpus, after a check of its whole index."""
    corpus = IndexedDataset(prefix)
    corpus.validate()
    starts = corpus.document_indices.tolist()
    return [[corpus[number].tolist() for number in range(start, stop)] for start, stop in zip(starts, starts[1:])]


def test_a_corpus_reads_back_as_its_text(tmp_path, capsys):
    tokenizer = TokenizerOptions(
        tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(byte_level_bpe(tmp_path / "tok"))
    )
    corpus = write_lines(tmp_path / "x.jsonl", *(json.dumps({"text": text}) for text in MULTILINGUAL))
    summary = preprocess(options(tmp_path, corpus, tokenizer=tokenizer, append_eod=True))
    prefix, built = tmp_path / "out_text_document", build_tokenizer(tokenizer)
    documents = documents_of(prefix)
    assert [[built.decode(sequence[:-1]) for sequence in document] for document in documents] == [
        [text] if text else [] for text in MULTILINGUAL
    ]
    assert all(document[0][-1] == 0 for document in documents if document)
    num_tokens, num_bytes = sum(len(d[0]) for d in documents if d), sum(len(text.encode()) for text in MULTILINGUAL)
    longest = max(len(d[0]) for d in documents if d)
    assert f"{len(MULTILINGUAL)} documents, {num_tokens:,} tokens, {num_bytes:,} bytes" in capsys.readouterr().out
    assert summary.tokens == num_tokens
    sidecar = read_sidecar(str(prefix))
    assert (sidecar.tokenizer, sidecar.vocab_size, sidecar.eod) == (built.fingerprint, built.vocab_size, 0)
    assert (sidecar.append_eod, sidecar.num_documents, sidecar.num_tokens) == (True, len(MULTILINGUAL), num_tokens)
    assert sidecar.summary == {
        "json_key": "text",
        "num_sequences": len(MULTILINGUAL) - 1,
        "empty_documents": 1,
        "longest_document": longest,
        "text_bytes": num_bytes,
        "tokens_per_byte": round(num_tokens / num_bytes, 6),
        "skipped_lines": {},
        "duplicate_documents": 0,
    }


def test_training_with_another_tokenizer_is_refused(tmp_path):
    first, second = byte_level_bpe(tmp_path / "a", 300), byte_level_bpe(tmp_path / "b", 301)
    tokenizer = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(first))
    preprocess(options(tmp_path, write_lines(tmp_path / "x.jsonl", '{"text": "a"}'), tokenizer=tokenizer))
    built = build_tokenizer(tokenizer)
    check_tokenizer(str(tmp_path / "out_text_document"), built.vocab_size, built.eod, built.fingerprint)
    other = build_tokenizer(TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(second)))
    with pytest.raises(DataError, match=r"vocabulary size 300 \(now 301\)"):
        check_tokenizer(str(tmp_path / "out_text_document"), other.vocab_size, other.eod, other.fingerprint)


def write_mixed_inputs(directory: Path) -> list[dict[str, str]]:
    """Files of several blocks in every form that is allowed, and the documents that they hold, in order."""
    generator = random.Random(5)
    documents = []
    for length in [0, 1, 3, 800_000, 0, *(generator.randrange(100) for _ in range(15_000)), 0]:
        text = " ".join(str(generator.randrange(100)) for _ in range(length))
        documents.append({"text": text, "title": str(length % 100), "note": "\u2028 €"})
    lines = [json.dumps(document, ensure_ascii=False).encode() for document in documents]
    (directory / "in").mkdir()
    (directory / "in" / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines[:6000]))
    (directory / "in" / "b.json.gz").write_bytes(gzip.compress(b"\n\n".join(lines[6000:11_000]) + b"\n", 1))
    (directory / "in" / "c.jsonl").write_bytes(b"\n".join(lines[11_000:]))
    assert len(lines[3]) > BLOCK_BYTES, "one line must be longer than a block"
    return documents


def test_the_files_are_the_same_for_any_number_of_workers_and_as_written_one_by_one(tmp_path):
    documents = write_mixed_inputs(tmp_path)
    with IndexedDatasetBuilder(tmp_path / "expected", "uint16") as builder:
        for document in documents:
            tokens = [int(word) for word in document["text"].split()]
            builder.add_document(tokens, [len(tokens)] if tokens else [])
        builder.finalize()
    written = []
    for workers in (1, 2, 3):
        (tmp_path / str(workers)).mkdir()
        preprocess(options(tmp_path / str(workers), tmp_path / "in", workers=workers, json_keys=("text", "title")))
        written.append({path.name: path.read_bytes() for path in sorted((tmp_path / str(workers)).iterdir())})
    assert written[0] == written[1] == written[2]
    kinds = ("bin", "idx", "json")
    assert list(written[0]) == [f"out_{key}_document.{kind}" for key in ("text", "title") for kind in kinds]
    for kind in ("bin", "idx"):
        assert written[0][f"out_text_document.{kind}"] == (tmp_path / f"expected.{kind}").read_bytes()


@pytest.mark.parametrize(
    "vocab_size, dtype",
    [(65_499, "uint16"), (65_500, "int32"), (65_535, "int32"), (65_536, "int32"), (65_538, "int32")],
)
def test_the_largest_id_survives_at_every_border_of_the_dtypes(tmp_path, vocab_size, dtype):
    largest = vocab_size - 1  # which is the end-of-document token of a tokenizer of this size
    corpus = write_lines(tmp_path / "x.jsonl", f'{{"text": "0 {largest - 1}"}}')
    preprocess(options(tmp_path, corpus, tokenizer=ids(largest), append_eod=True))
    assert IndexedDataset(tmp_path / "out_text_document").dtype.name == dtype
    assert documents_of(tmp_path / "out_text_document") == [[[0, largest - 1, largest]]]


@pytest.mark.parametrize("append_eod", [False, True])
@pytest.mark.parametrize("lengths", [[0, 1, 2], [2, 0, 0, 1, 0]])
def test_empty_documents_anywhere_are_kept_and_counted(tmp_path, lengths, append_eod, capsys):
    corpus = write_lines(tmp_path / "x.jsonl", *(json.dumps({"text": "7 " * length}) for length in lengths))
    summary = preprocess(options(tmp_path, corpus, append_eod=append_eod))
    end = [100] if append_eod else []
    assert documents_of(tmp_path / "out_text_document") == [
        [[7] * length + end] if length else [] for length in lengths
    ]
    assert summary.columns["text"].empty == lengths.count(0)
    assert f"{len(lengths)} documents" in capsys.readouterr().out


BAD_INPUTS = {
    "malformed": (b'{"text": "1"}\n{"text": \n', r"x.jsonl:2: malformed JSON"),
    "invalid UTF-8": (b'{"text": "1"}\n{"text": "\xff"}', r"x.jsonl:2: invalid UTF-8"),
    "no encoding": (b'{"text": "1"}\n{"text": "one"}', r"x.jsonl:2: cannot be encoded"),
    "late": (b'{"text": "1"}\n' * 100_000 + b"{", r"x.jsonl:100001: malformed JSON"),
    "empty file": (b"", r"at least one token; .* gave 0 documents, 0 of them empty. Nothing was written"),
    "empty documents": (b'{"text": ""}\n' * 3, r"gave 3 documents, 3 of them empty"),
    "cut-off gzip": (gzip.compress(b'{"text": "1"}\n' * 100)[:-9], r"x.jsonl must be whole gzip data"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_an_input_that_cannot_be_used_leaves_nothing_behind(tmp_path, case):
    content, message = BAD_INPUTS[case]
    (tmp_path / "x.jsonl").write_bytes(content)
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match=message):
        preprocess(options(tmp_path / "out", tmp_path / "x.jsonl", append_eod=True))
    assert not list((tmp_path / "out").iterdir())


def test_a_failing_run_leaves_an_older_corpus_alone(tmp_path):
    corpus = write_lines(tmp_path / "x.jsonl", '{"text": "1 2"}')
    preprocess(options(tmp_path, corpus))
    before = {path: path.read_bytes() for path in tmp_path.glob("out*")}
    write_lines(corpus, '{"text": "3"}', "{")
    with pytest.raises(DataError):
        preprocess(options(tmp_path, corpus))
    assert {path: path.read_bytes() for path in tmp_path.glob("out*")} == before
    write_lines(corpus, '{"text": "3"}')
    preprocess(options(tmp_path, corpus))
    assert documents_of(tmp_path / "out_text_document") == [[[3]]]


def test_one_empty_column_of_several_is_an_error(tmp_path):
    corpus = write_lines(tmp_path / "x.jsonl", '{"a": "1", "b": ""}', '{"a": "2", "b": ""}')
    with pytest.raises(DataError, match="the corpus of 'b' must hold at least one token"):
        preprocess(options(tmp_path, corpus, json_keys=("a", "b")))
    assert not list(tmp_path.glob("out*"))


def test_invalid_lines_are_left_out_on_request_counted_and_shown(tmp_path, caplog):
    corpus = write_lines(tmp_path / "x.jsonl", '{"text": "1"}', "{", '{"txt": "1"}', "[", '{"text": "2"}')
    summary = preprocess(options(tmp_path, corpus, skip_invalid=True))
    assert documents_of(tmp_path / "out_text_document") == [[[1]], [[2]]]
    assert {reason: skipped.count for reason, skipped in summary.skipped.items()} == {
        "malformed JSON": 2,
        "missing key": 1,
    }
    assert any(f"left out 2 lines, the first at {corpus}:2: malformed JSON" in message for message in caplog.messages)
    assert read_sidecar(str(tmp_path / "out_text_document")).summary["skipped_lines"] == {
        "malformed JSON": 2,
        "missing key": 1,
    }


def test_nothing_but_invalid_lines_is_an_error_that_says_so(tmp_path):
    corpus = write_lines(tmp_path / "x.jsonl", '{"txt": "1"}', '{"txt": "1"}')
    with pytest.raises(
        DataError, match="gave 0 documents, 0 of them empty; left out 2 lines, the first at .*x.jsonl:1: missing key"
    ):
        preprocess(options(tmp_path, corpus, skip_invalid=True))


def test_append_eod_without_such_a_token_is_refused_before_any_data_is_read(tmp_path):
    path = word_level(tmp_path / "tok" / "tokenizer.json", ["<unk>", "a", "<stop>"])
    tokenizer = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(path))
    with pytest.raises(
        TokenizerError, match="--append-eod needs a tokenizer with an end-of-document token.*--eod-token"
    ):
        preprocess(options(tmp_path, tmp_path / "no such input", tokenizer=tokenizer, append_eod=True))
    assert not list(tmp_path.glob("out*"))
    corpus = write_lines(tmp_path / "x.jsonl", '{"text": "a a"}')
    preprocess(options(tmp_path, corpus, tokenizer=tokenizer))
    assert documents_of(tmp_path / "out_text_document") == [[[1, 1]]]
    named = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(path), eod_token="<stop>")
    preprocess(options(tmp_path, corpus, tokenizer=named, append_eod=True))
    assert documents_of(tmp_path / "out_text_document") == [[[1, 1, 2]]]


def test_a_second_end_of_document_is_warned_of(tmp_path, caplog):
    template = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    path = word_level(tmp_path / "tokenizer.json", ["<unk>", "a", "</s>"], post_processor=template)
    tokenizer = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(path))
    corpus = write_lines(tmp_path / "x.jsonl", '{"text": "a"}')
    preprocess(options(tmp_path, corpus, tokenizer=tokenizer, append_eod=True))
    assert documents_of(tmp_path / "out_text_document") == [[[1, 2, 2]]]
    assert any("--append-eod adds a second one" in message for message in caplog.messages)


def test_a_missing_tokenizer_creates_nothing(tmp_path):
    tokenizer = TokenizerOptions(
        tokenizer_type="GPT2BPETokenizer",
        vocab_file=str(tmp_path / "vocab.json"),
        merge_file=str(tmp_path / "merges.txt"),
    )
    corpus = write_lines(tmp_path / "x.jsonl", '{"text": "a"}')
    with pytest.raises(TokenizerError, match="--vocab-file must be an existing file .*vocab.json"):
        preprocess(options(tmp_path, corpus, tokenizer=tokenizer))
    assert list(tmp_path.iterdir()) == [corpus]


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"workers": 0}, "--workers must be at least 1; given 0"),
        ({"log_interval": 0}, "--log-interval must be at least 1; given 0"),
        ({"json_keys": ("a", "b", "a")}, "--json-keys must be different keys, at least one; given 'a b a'"),
        ({"keep_newlines": True}, "--keep-newlines needs --split-sentences"),
        ({"json_keys": ()}, "--json-keys must be different keys, at least one; given ''"),
    ],
)
def test_flags_out_of_range(tmp_path, fields, message):
    with pytest.raises(ConfigError, match=message):
        preprocess(options(tmp_path, tmp_path / "x", **fields))


def bpe(directory: Path) -> TokenizerOptions:
    return TokenizerOptions(
        tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(byte_level_bpe(directory / "tok"))
    )


def written(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("out*"))}


def test_both_backends_write_the_same_files_and_the_log_says_which_and_why(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logger, "propagate", True)
    corpus = write_lines(
        tmp_path / "x.jsonl", *(json.dumps({"text": text + " <|endoftext|>"}) for text in MULTILINGUAL)
    )
    files = []
    for backend in ("auto", "gigatoken", "tokenizers"):
        with caplog.at_level("INFO", "megalite"):
            preprocess(options(tmp_path, corpus, tokenizer=bpe(tmp_path), append_eod=True, tokenizer_backend=backend))
        files.append(written(tmp_path))
    assert files[0] == files[1] == files[2]
    said = [message for message in caplog.messages if message.startswith("encoding with")]
    assert said[0].startswith(f"encoding with gigatoken: its ids are equal on the first {len(MULTILINGUAL)} texts")
    assert said[2] == "encoding with tokenizers: --tokenizer-backend asks for it"


@pytest.mark.parametrize("workers", [1, 2])
def test_sentences_become_a_corpus_of_another_name(tmp_path, workers):
    corpus = write_lines(
        tmp_path / "x.jsonl", '{"text": "One. Two.\\n Three."}', '{"text": " "}', '{"text": ["Four.", "Five"]}'
    )
    preprocess(
        options(tmp_path, corpus, tokenizer=bpe(tmp_path), append_eod=True, split_sentences=True, workers=workers)
    )
    decode = build_tokenizer(bpe(tmp_path)).decode
    documents = documents_of(tmp_path / "out_text_sentence")
    end = "<|endoftext|>"
    assert [[decode(ids) for ids in document] for document in documents] == [
        ["One.", "Two.", "Three." + end], [], ["Four.", "Five" + end]
    ]


def test_only_the_first_document_of_a_text_stays(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logger, "propagate", True)
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in" / "a.jsonl", '{"a": "1", "b": "1"}', '{"a": "1", "b": "2"}', '{"a": "1", "b": "1"}')
    write_lines(tmp_path / "in" / "b.jsonl", '{"a": "1", "b": "2"}', '{"a": "", "b": "3"}', '{"a": "", "b": "3"}')
    summary = preprocess(
        options(tmp_path, tmp_path / "in", json_keys=("a", "b"), dedup=True, append_eod=True, workers=2)
    )
    assert documents_of(tmp_path / "out_a_document") == [[[1, 100]], [[1, 100]], []]
    assert documents_of(tmp_path / "out_b_document") == [[[1, 100]], [[2, 100]], [[3, 100]]]
    assert (summary.duplicates, summary.columns["b"].text_bytes) == (3, 3)
    assert any("left out 3 documents whose text came before" in message for message in caplog.messages)
    assert read_sidecar(str(tmp_path / "out_a_document")).summary["duplicate_documents"] == 3
    assert not list(tmp_path.glob("*.partial"))


def test_the_summary_is_written_as_json(tmp_path):
    corpus = write_lines(tmp_path / "x.jsonl", '{"text": "1 2"}', "{", '{"text": ""}')
    preprocess(options(tmp_path, corpus, skip_invalid=True, summary_json=str(tmp_path / "summary.json")))
    report = json.loads((tmp_path / "summary.json").read_text())
    assert report["corpora"]["text"]["documents"] == 2
    assert (report["corpora"]["text"]["empty"], report["corpora"]["text"]["longest"]) == (1, 2)
    assert report["skipped"]["malformed JSON"]["line"] == 2
    assert report["tokens_per_second"] > 0


class Interruption:
    """Ctrl-C after so many chunks are written, with a record after each."""

    def __init__(self, monkeypatch, chunks: int | None):
        monkeypatch.setattr("megalite.data.preprocess.output.SECONDS_BETWEEN_RECORDS", 0.0)
        self.written = 0
        write = Output.write

        def counted(output, chunk, seconds):
            if self.written == chunks:
                raise KeyboardInterrupt
            write(output, chunk, seconds)
            self.written += 1

        monkeypatch.setattr(Output, "write", counted)


def write_many_inputs(directory: Path) -> Path:
    """Seven chunks: files of all kinds, with repeated documents and invalid lines."""
    directory.mkdir()
    number = iter(range(1, 1000))

    def lines():
        return "".join(json.dumps({"text": f"Say {next(number) % 9}. Or {n}!", "b": "x"}) + "\n" for n in range(12))

    (directory / "a.jsonl").write_text(lines() + "{\n" + lines())
    (directory / "b.jsonl.gz").write_bytes(gzip.compress(lines().encode()))
    (directory / "c.jsonl").write_text(lines() + "[\n")
    for name in ("d.jsonl", "e.json", "f.jsonl", "g.jsonl"):
        (directory / name).write_text(lines() + "{}\n" + lines())
    return directory


@pytest.mark.parametrize("stop", [1, 2, 6])
def test_an_interrupted_run_goes_on_and_ends_with_the_same_bytes(tmp_path, stop, monkeypatch, caplog):
    monkeypatch.setattr(logger, "propagate", True)
    inputs, tokenizer = write_many_inputs(tmp_path / "in"), bpe(tmp_path)
    fields = dict(tokenizer=tokenizer, json_keys=("text", "b"), dedup=True, split_sentences=True, skip_invalid=True)
    (tmp_path / "whole").mkdir()
    whole = preprocess(options(tmp_path / "whole", inputs, **fields))
    with monkeypatch.context() as patch:
        Interruption(patch, stop)
        with pytest.raises(KeyboardInterrupt):
            preprocess(options(tmp_path, inputs, **fields))
    assert (tmp_path / "out.resume.json").exists()
    assert not list(tmp_path.glob("out*.idx")), "nothing looks like a corpus yet"
    partial = tmp_path / "out_b_sentence.bin.partial"
    partial.write_bytes(partial.read_bytes() + b"written after the last record")
    with monkeypatch.context() as patch, caplog.at_level("INFO", "megalite"):
        rest = Interruption(patch, None)
        summary = preprocess(options(tmp_path, inputs, **fields, workers=2))
    assert rest.written == 7 - stop
    assert any(message.startswith("continuing an interrupted run after") for message in caplog.messages)
    assert written(tmp_path) == written(tmp_path / "whole")
    assert (summary.columns, summary.skipped, summary.duplicates) == (whole.columns, whole.skipped, whole.duplicates)


def test_other_flags_or_inputs_start_anew(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logger, "propagate", True)
    inputs, tokenizer = write_many_inputs(tmp_path / "in"), bpe(tmp_path)
    with monkeypatch.context() as patch:
        Interruption(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            preprocess(options(tmp_path, inputs, tokenizer=tokenizer, skip_invalid=True))
    (tmp_path / "whole").mkdir()
    with caplog.at_level("INFO", "megalite"):
        for directory in (tmp_path, tmp_path / "whole"):
            preprocess(options(directory, inputs, tokenizer=tokenizer, skip_invalid=True, append_eod=True))
    assert any(
        "out.resume.json is of a run with other flags or inputs: starting anew" in message
        for message in caplog.messages
    )
    assert written(tmp_path) == written(tmp_path / "whole")


def test_an_error_of_the_user_leaves_nothing_even_after_a_record(tmp_path, monkeypatch):
    inputs = write_many_inputs(tmp_path / "in")
    Interruption(monkeypatch, None)
    with pytest.raises(DataError, match="c.jsonl:13: malformed JSON"):
        (inputs / "a.jsonl").write_text('{"text": "1"}\n')
        preprocess(options(tmp_path, inputs, tokenizer=bpe(tmp_path)))
    assert not list(tmp_path.glob("out*"))


def test_a_lost_partial_file_is_told(tmp_path, monkeypatch):
    inputs, tokenizer = write_many_inputs(tmp_path / "in"), bpe(tmp_path)
    with monkeypatch.context() as patch:
        Interruption(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            preprocess(options(tmp_path, inputs, tokenizer=tokenizer, skip_invalid=True))
    (tmp_path / "out_text_document.lengths.partial").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"lengths.partial must hold at least the \d+ bytes .* it holds 0: remove .*resume.json"
    ):
        preprocess(options(tmp_path, inputs, tokenizer=tokenizer, skip_invalid=True))


def test_a_fault_late_in_a_large_file_has_its_line(tmp_path):
    line = '{"text": "' + "1 " * 5000 + '"}\n'
    (tmp_path / "x.jsonl").write_text(line * 600 + "{\n" + line)
    assert (tmp_path / "x.jsonl").stat().st_size > 2.5 * BLOCK_BYTES
    with pytest.raises(DataError, match="x.jsonl:601: malformed JSON"):
        preprocess(options(tmp_path, tmp_path / "x.jsonl", workers=2))
