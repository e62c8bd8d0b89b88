"""tools/merge_datasets.py and tools/inspect_dataset.py from the command line."""

import subprocess
import sys
from pathlib import Path

from tests.data.corpora import write_corpus

ROOT = Path(__file__).parent.parent.parent


def run(tool: str, *flags: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), *map(str, flags)], capture_output=True, text=True
    )


def test_merge_and_inspect(tmp_path):
    write_corpus(tmp_path / "parts" / "a", [[1, 2]])
    write_corpus(tmp_path / "parts" / "b", [[3]])
    merged = run("merge_datasets.py", "--input", tmp_path / "parts", "--output-prefix", tmp_path / "out")
    assert (merged.returncode, merged.stdout) == (
        0,
        f"{tmp_path}/out.bin/.idx (uint16): 2 corpora, 2 documents, 3 tokens\n",
    )
    shown = run("inspect_dataset.py", tmp_path / "out", "--document", "-1", "--check")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "document 1: 1 sequences, 1 tokens\n  1: [3]\nintact" in shown.stdout


def test_users_errors_are_one_sentence_and_status_2(tmp_path):
    for done in (
        run("merge_datasets.py", "--input", tmp_path, "--output-prefix", tmp_path / "out"),
        run("inspect_dataset.py", tmp_path / "none"),
    ):
        assert done.returncode == 2 and done.stderr.startswith("DataError: ") and "Traceback" not in done.stderr
