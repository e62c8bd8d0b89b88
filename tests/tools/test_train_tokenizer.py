import subprocess
import sys
from pathlib import Path

TOOL = str(Path(__file__).parent.parent.parent / "tools" / "train_tokenizer.py")


def run(*flags: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, TOOL, *map(str, flags)], capture_output=True, text=True)


def test_a_run_from_the_command_line(tmp_path):
    (tmp_path / "x.txt").write_text("ab ab ab ab\n")
    done = run("--input", tmp_path / "x.txt", "--output_dir", tmp_path / "out", "--vocab-size", 258)
    assert (done.returncode, done.stderr) == (0, "read 12 characters; merging pairs\n")
    assert done.stdout.startswith(f"{tmp_path}/out/tokenizer.json: 258 tokens, in ")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["tokenizer.json", "tokenizer_config.json"]


def test_a_users_error_is_one_sentence_and_status_2(tmp_path):
    done = run("--input", tmp_path / "none.txt", "--output-dir", tmp_path / "out", "--vocab-size", 300)
    assert done.returncode == 2
    assert done.stderr.startswith("DataError: --input must name existing files") and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
