"""The program as a user runs it: exit status, signals, memory."""

import contextlib
import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from megalite.data.indexed import IndexedDataset

ROOT = Path(__file__).parent.parent.parent
TOOL = str(ROOT / "tools" / "preprocess_data.py")


def command(source: Path, prefix: Path, *flags: str) -> list[str]:
    tokenizer = ["--tokenizer-type", "NullTokenizer", "--vocab-size", "100"]
    files = ["--input", str(source), "--output-prefix", str(prefix)]
    return [sys.executable, TOOL, *files, "--workers", "1", *tokenizer, *flags]


def test_a_run_from_the_command_line(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "1 2"}\n{"text": ""}\n')
    done = subprocess.run(
        command(tmp_path / "x.jsonl", tmp_path / "new" / "out", "--append-eod"), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "out_text_document.bin/.idx (uint16): 2 documents, 3 tokens, 3 bytes of text" in done.stdout
    assert IndexedDataset(tmp_path / "new" / "out_text_document")[0].tolist() == [1, 2, 100]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_read(tmp_path, pack):
    arguments = command(Path("-"), tmp_path / "out", "--workers", "2")
    done = subprocess.run(arguments, input=pack(b'{"text": "1 2"}\n' * 3), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert [tokens.tolist() for tokens in IndexedDataset(tmp_path / "out_text_document")] == [[1, 2]] * 3


def test_a_users_error_is_one_sentence_and_status_2(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "1"}\n{"text": "1"\n')
    done = subprocess.run(command(tmp_path / "x.jsonl", tmp_path / "out"), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"DataError: {tmp_path}/x.jsonl:2: malformed JSON: ")
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def running(pid: int) -> bool:
    """Whether the process still does anything; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def feed(path: Path) -> None:
    """Write documents into a pipe until nobody reads them any more."""
    with contextlib.suppress(BrokenPipeError), open(path, "wb", buffering=0) as pipe:
        while True:
            pipe.write(b'{"text": "1 2 3"}\n' * 1000)


@pytest.fixture
def half_done(tmp_path):
    """A run in the middle of an input without end, which has written a part."""
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        command(tmp_path / "pipe", tmp_path / "out"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell's background job is started with SIGINT ignored, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    feeder = threading.Thread(target=feed, args=(tmp_path / "pipe",), daemon=True)
    feeder.start()
    partial = tmp_path / "out_text_document.lengths.partial"
    wait_until(lambda: partial.exists() and partial.stat().st_size > 0)
    yield process
    process.kill()
    process.wait()
    feeder.join(60)


@pytest.mark.parametrize("ending, status", [(signal.SIGKILL, -9), (signal.SIGTERM, 130), (signal.SIGINT, 130)])
def test_an_interrupted_run_leaves_nothing_that_looks_whole_and_no_process(tmp_path, half_done, ending, status):
    workers = children(half_done.pid)
    half_done.send_signal(ending)
    assert half_done.wait(60) == status
    wait_until(lambda: not any(map(running, workers)))
    left = sorted(path.name for path in tmp_path.iterdir())
    partial = [f"out_text_document.{kind}.partial" for kind in ("bin", "documents", "lengths")]
    assert left == ([*partial, "pipe"] if ending == signal.SIGKILL else ["pipe"])
    (tmp_path / "x.jsonl").write_text('{"text": "5"}\n')
    subprocess.run(command(tmp_path / "x.jsonl", tmp_path / "out"), check=True, capture_output=True)
    assert [tokens.tolist() for tokens in IndexedDataset(tmp_path / "out_text_document")] == [[5]]


STARTER = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_memory(tmp_path: Path, num_documents: int) -> int:
    """Peak bytes of the largest process of a run over documents of one token.

    It is started by a small process: one that pytest itself starts counts as large as pytest was.
    """
    (tmp_path / "x.jsonl").write_text('{"text": "1"}\n' * num_documents)
    starter = [sys.executable, "-c", STARTER, *command(tmp_path / "x.jsonl", tmp_path / "out")]
    done = subprocess.run(starter, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert IndexedDataset(tmp_path / "out_text_document").num_documents == num_documents
    return int(done.stdout) * 1024


def test_memory_grows_by_a_few_bytes_a_document(tmp_path):
    """Python objects, one a document, would take over a hundred bytes; the index takes 32 at its peak.

    Even the few fill all chunks that are on their way at a time.
    """
    few, many = 350_000, 650_000
    growth = peak_memory(tmp_path, many) - peak_memory(tmp_path, few)
    assert growth < 64 * (many - few)
