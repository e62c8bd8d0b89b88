import subprocess
import sys
from pathlib import Path

TOOL = str(Path(__file__).parent.parent.parent / "tools" / "train_tokenizer.py")

FILES = ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]


def run(*flags: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, TOOL, *map(str, flags)], capture_output=True, text=True)


def test_a_run_from_the_command_line(tmp_path):
    (tmp_path / "x.txt").write_text("ab ab ab ab\n")
    done = run("--input", tmp_path / "x.txt", "--output_dir", tmp_path / "out", "--vocab-size", 258)
    assert (done.returncode, done.stderr) == (0, "read 12 characters; learning tokens\n")
    assert done.stdout.startswith(f"{tmp_path}/out/tokenizer.json: 258 tokens, in ")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES


def test_standard_input_and_flags_of_a_model(tmp_path):
    command = [sys.executable, TOOL, "--input", "-", "--output-dir", str(tmp_path), "--vocab-size", "40"]
    command += ["--model-type", "wordpiece", "--cased"]
    done = subprocess.run(command, input='{"text": "Ab Ab abc"}\n', capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "vocab.txt").read_text().split() == "[PAD] [UNK] [CLS] [SEP] [MASK] ##b ##c A a Ab".split()


def test_a_users_error_is_one_sentence_and_status_2(tmp_path):
    done = run("--input", tmp_path / "none.txt", "--output-dir", tmp_path / "out", "--vocab-size", 300)
    assert done.returncode == 2
    assert done.stderr.startswith("DataError: --input must name existing files") and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
