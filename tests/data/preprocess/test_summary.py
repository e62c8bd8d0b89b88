import json

import numpy as np

from megalite.data.preprocess.encode import Column, EncodedChunk, Skipped
from megalite.data.preprocess.summary import ColumnSummary, Progress, Summary


def column(lengths, document_sequences, text_bytes=0):
    documents = np.array([text_bytes, *[0] * (len(document_sequences) - 1)])
    return Column(
        np.zeros(sum(lengths), np.int32), np.array(lengths, np.int32), np.array(document_sequences, np.int32), documents
    )


def skipped(count, line, path="x"):
    return Skipped(count, path, line, "why")


def test_columns_add_up():
    summary = ColumnSummary()
    summary.add(column([3, 4, 2], [0, 2, 1, 0], text_bytes=20))
    summary.add(column([5], [1], text_bytes=8))
    summary.add(column([], [0, 0]))
    assert summary == ColumnSummary(documents=7, sequences=4, tokens=14, empty=4, text_bytes=28, longest=7)
    assert summary.tokens_per_byte == 0.5
    assert ColumnSummary().tokens_per_byte == 0.0


def test_skipped_lines_add_up_and_the_first_is_kept():
    summary = Summary({"text": ColumnSummary()})
    for number, faults in enumerate([{"a": skipped(2, 1)}, {"b": skipped(1, 7), "a": skipped(3, 6)}]):
        summary.add(EncodedChunk([column([1], [1])], 10, 5, number, skipped=faults))
    summary.duplicates = 3
    assert summary.skipped_text() == [
        "left out 5 lines, the first at x:1: a: why",
        "left out 1 lines, the first at x:7: b: why",
        "left out 3 documents whose text came before",
    ]
    assert summary.as_json("text")["skipped_lines"] == {"a": 5, "b": 1}
    assert summary.input_bytes == 20


def test_rates():
    summary = Summary(
        {"a": ColumnSummary(documents=10, tokens=300), "b": ColumnSummary(documents=10, tokens=100)},
        input_bytes=8_000_000,
    )
    assert summary.rates(2.0) == "5 docs/s | 4.00 MB/s | 200 tokens/s"


def test_progress_shows_share_and_time_left(monkeypatch, capsys):
    now = 100.0
    monkeypatch.setattr("megalite.data.preprocess.summary.time.monotonic", lambda: now)
    progress = Progress(interval=10, total_bytes=4_000)
    summary = Summary({"text": ColumnSummary(documents=20, tokens=400)}, input_bytes=2_000_000)
    now = 100.5
    progress.update(summary, 1_000)
    assert capsys.readouterr().err == "", "at most one line a second"
    now = 102.0
    progress.update(summary, 1_000)
    assert capsys.readouterr().err == "20 documents | 10 docs/s | 1.00 MB/s | 200 tokens/s | 25.0 % | ETA 0:00:06\n"
    now = 110.0
    summary.columns["text"].documents = 29
    progress.update(summary, 1_000)
    assert capsys.readouterr().err == "", "not before the interval's documents"
    summary.columns["text"].documents = 30
    progress.update(summary, 0)
    assert capsys.readouterr().err == "30 documents | 3 docs/s | 0.20 MB/s | 40 tokens/s\n", "a pipe has no size"


def test_a_summary_survives_json():
    summary = Summary({"a": ColumnSummary(1, 2, 3, 4, 5, 6), "b": ColumnSummary()}, {"bad": skipped(2, 9)}, 7, 8, 1.5)
    assert Summary.restore(json.loads(json.dumps(summary.state()))) == summary


def test_the_report_has_counts_and_rates():
    summary = Summary({"a": ColumnSummary(10, 10, 300, 1, 600, 50)}, {"bad": skipped(2, 9)}, 7, 8_000_000, 2.0)
    report = json.loads(json.dumps(summary.report()))
    assert report["corpora"]["a"] == {
        "documents": 10,
        "sequences": 10,
        "tokens": 300,
        "empty": 1,
        "text_bytes": 600,
        "longest": 50,
        "tokens_per_byte": 0.5,
    }
    assert report["skipped"] == {"bad": {"count": 2, "path": "x", "line": 9, "detail": "why"}}
    assert (report["duplicates"], report["input_bytes"], report["seconds"]) == (7, 8_000_000, 2.0)
    rates = [report[f"{what}_per_second"] for what in ("documents", "megabytes", "tokens")]
    assert rates == [5.0, 4.0, 150.0]


def test_a_run_that_continues_another_counts_its_time(monkeypatch):
    now = 100.0
    monkeypatch.setattr("megalite.data.preprocess.summary.time.monotonic", lambda: now)
    progress = Progress(interval=10, total_bytes=4_000, seconds=20.0)
    now = 103.0
    assert progress.seconds == 23.0
