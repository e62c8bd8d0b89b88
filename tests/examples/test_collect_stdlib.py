import json
import subprocess
import sys
from pathlib import Path

SCRIPT = str(Path(__file__).parent.parent.parent / "examples" / "quickstart" / "collect_stdlib.py")


def collect(directory: Path, *flags: object) -> subprocess.CompletedProcess:
    files = ["--train", directory / "train.jsonl", "--heldout", directory / "heldout.jsonl"]
    return subprocess.run([sys.executable, SCRIPT, *map(str, [*files, *flags])], capture_output=True, text=True)


def read(path: Path) -> dict[str, str]:
    """Path in the library -> text."""
    return {document["path"]: document["text"] for document in map(json.loads, path.read_text().splitlines())}


def make_library(root: Path) -> dict[str, str]:
    """A library of 25 files to collect, with others that are to be left out."""
    texts = {f"package{number % 3}/module{number}.py": f"x = {number}\n" for number in range(24)}
    texts["latin.py"] = "# coding: latin-1\n# é\n"
    left_out = ["test/test_x.py", "package0/tests/y.py", "site-packages/z/z.py", "readme.txt"]
    for name, text in {**texts, **dict.fromkeys(left_out, "x = 0\n"), "empty.py": ""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="latin-1")
    (root / "broken.py").write_bytes(b"# \xff\n")  # neither UTF-8 nor declared as anything else
    return texts


def test_every_file_is_collected_once_and_a_share_is_held_out(tmp_path):
    texts = make_library(tmp_path / "lib")
    done = collect(tmp_path, "--root", tmp_path / "lib", "--heldout-every", 5)
    assert done.returncode == 0, done.stderr
    train, heldout = read(tmp_path / "train.jsonl"), read(tmp_path / "heldout.jsonl")
    assert (len(train), len(heldout)) == (20, 5)
    assert {**train, **heldout} == texts
    assert "train.jsonl: 20 source files of Python" in done.stdout and "heldout.jsonl: 5 source files" in done.stdout


def test_the_real_library_up_to_a_size(tmp_path):
    assert collect(tmp_path / "a", "--max-megabytes", 2).returncode == 0
    assert collect(tmp_path / "b", "--max-megabytes", 2).returncode == 0
    for name in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    train, heldout = read(tmp_path / "a" / "train.jsonl"), read(tmp_path / "a" / "heldout.jsonl")
    num_bytes = sum(len(text.encode()) for text in [*train.values(), *heldout.values()])
    assert 2e6 <= num_bytes < 4e6, "it stops with the file that reaches the size"
    assert heldout and not set(train) & set(heldout)


def test_a_directory_without_a_library(tmp_path):
    done = collect(tmp_path, "--root", tmp_path)
    assert done.returncode == 2
    assert "--root must hold the source of a Python library, at least 20 files" in done.stderr
    assert not list(tmp_path.iterdir())
