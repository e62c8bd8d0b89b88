"""Every benchmark runs to its end, at sizes that take seconds, and prints the table that it promises."""

import importlib
import math
import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import checkpoint, paired, preprocess_contenders, recompute_memory
from megalite.errors import ConfigError

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if "\ndef main(" in path.read_text())
PART_OF_ANOTHER = {"megatron_index"}
"""Run by benchmarks.data_index, by an interpreter that has megatron-core."""
NUMBER = re.compile(r"(?<![\w.])-?(?:\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf)\b")
SMALL = "--layers 1 --seq-length 64 --vocab-size 128"


@pytest.fixture
def printed(monkeypatch, capsys):
    """A function that runs a benchmark with a command line in this process, and returns what it printed."""

    def run(name, arguments, status=0):
        monkeypatch.setattr(sys, "argv", [name, *arguments.split()])
        assert (importlib.import_module(f"benchmarks.{name}").main() or 0) == status
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def preloaded():
    """Starts processes as spawning does, from one that has PyTorch: to import it takes longer than they have to do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "benchmarks.data_parallel", "benchmarks.train_step"])
    return context


@pytest.fixture
def forking(monkeypatch, preloaded):
    monkeypatch.setattr(paired.multiprocessing, "get_context", lambda method: preloaded)


def numbers_of(row):
    """All numbers of a row, none of which may be infinite or none at all."""
    found = [float(text.replace(",", "")) for text in NUMBER.findall(row)]
    assert all(map(math.isfinite, found)), row
    return found


def rows(text, num_header_cells=1):
    """The first cells of each row of the tables in ``text`` -> the numbers of the others."""
    table = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not line.startswith("|---"):
            table[tuple(cells[:num_header_cells])] = numbers_of(" | ".join(cells[num_header_cells:]))
    return {name if num_header_cells > 1 else name[0]: numbers for name, numbers in table.items()}


def assert_rates(table, contestants, num_numbers):
    """A row a contestant, each number of which is above zero."""
    for name in contestants:
        assert len(table[name]) == num_numbers and min(table[name]) > 0, (name, table)


@pytest.mark.parametrize("also", ["--style gpt2", "--style llama --bf16"])
def test_train_step(printed, forking, also):
    out = printed("train_step", f"{also} {SMALL} --rounds 2 --threads 1")
    assert f"{also.split()[1]}, {'bf16' if 'bf16' in also else 'fp32'}, 1 x 256, 1 threads, 2 rounds" in out
    assert_rates(rows(out), ("PyTorch eager", "megalite"), 5)
    assert rows(out)["PyTorch eager"][1:4] == [1, 1, 1]


def test_data_parallel(printed, forking):
    out = printed("data_parallel", f"{SMALL} --rounds 2")
    contestants = ("megalite ZeRO-1", "megalite replicated", "DDP + ZeroRedundancyOptimizer", "FSDP2")
    assert_rates(rows(out), contestants, 5)


def test_ops_with_compiled_pytorch(printed, forking):
    out = printed("ops", "--only sum_of_squares --rounds 2 --threads 1")
    assert_rates(rows(out), ["sum_of_squares"], 7)
    assert re.search(r"\| \d+% \|$", out)


def test_attention(printed, forking):
    out = printed("attention", "--sequences 512 --head-dims 64 128 --rounds 2 --threads 1")
    table = rows(out, 2)
    assert list(table)[1:] == [("512", "64"), ("512", "128")]
    assert_rates(table, list(table)[1:], 5)


def test_preprocess(printed):
    everything_but_datasets = "--only tokenizers recipe gigatoken JSON"
    out = printed("preprocess", f"--megabytes 1 --copies 1 --rounds 1 --workers 2 {everything_but_datasets}")
    table = rows(out, 2)
    expected = {(name, "1" if "alone" in name else "2") for name in preprocess_contenders.CONTENDERS}
    expected -= {("datasets.map", "2")}
    assert set(table) - {("contender", "workers")} == expected
    for name, workers in expected:
        assert len(table[name, workers]) == (3 if name.startswith("megalite") or "alone" in name else 6)
        assert min(table[name, workers][:3]) > 0


def test_preprocess_memory():
    """In a program of its own: the processes that pytest starts count at least as large as pytest has become."""
    command = [sys.executable, "-m", "benchmarks.preprocess", "--megabytes", "1", "--memory"]
    table = rows(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    documents = [numbers[0] for numbers in table.values() if numbers]
    assert documents == [documents[0] * copies for copies in (1, 4, 16, 40)]
    assert all(20 < numbers[1] < 2000 for numbers in table.values() if numbers), "MiB of a process"


def test_data_index(printed):
    out = printed("data_index", "--documents 20000 --epochs 2 --prefixes 3 --rounds 1")
    table = rows(out)
    assert len(table["megalite"]) == 4 and "20,000 documents" in out and "2 epochs" in out
    starts = [name for name in table if name.startswith(("open", "a job"))]
    assert len(starts) == 4 and all(len(table[name]) == 1 for name in starts)
    assert all(table[name][0] > 0.5 for name in starts if name.startswith("a job")), "it imports torch"


def test_loader(printed, forking):
    out = printed("loader", "--rounds 2 --tokens 1000000")
    parts = re.split(r"\n(?=micro-batches of |one process alone)", out)[1:]
    assert [part.splitlines()[0] for part in parts] == [
        *(f"micro-batches of {shape}, two ranks" for shape in ("4 x 2048", "1 x 8192", "16 x 512")),
        "one process alone",
    ]
    for part in parts:
        assert_rates(rows(part), ["one process"] if "alone" in part else ["all read", "one reads"], 5)


def test_checkpoint(printed, tmp_path):
    out = printed("checkpoint", f"--rounds 2 --megabytes 90 --directory {tmp_path}")
    assert re.match(r"85 MB in 15 tensors, 2 rounds\nfirst stall \d\.\d\d s\nsave\n", out)
    save, load = out.partition("save\n")[2].split("load\n")
    for part, contenders in ((save, [*checkpoint.SAVES, "stall"]), (load, checkpoint.LOADS)):
        lines = {line[:14].strip(): numbers_of(line[14:]) for line in part.splitlines()}
        assert set(lines) == set(contenders)
        assert all(len(lines[name]) == (1 if name == "megalite" else 4) for name in lines)
    assert list(tmp_path.iterdir()) == []


def test_recompute_memory(printed, forking):
    table = rows(printed("recompute_memory", "--layers 2 --seq-length 64"), 2)
    cases = {(str(layout), case.name) for layout in recompute_memory.LAYOUTS for case in recompute_memory.CASES}
    assert set(table) - {("layout", "recomputation")} == cases
    for expected, ours, counted, share, peak in (table[case] for case in cases):
        assert ours <= expected and share == pytest.approx(counted / expected, abs=0.02) and peak > 0


def test_startup(printed):
    out = printed("startup", "--processes 2 --rounds 1")
    lines = {line[:22].strip(): numbers_of(line[22:]) for line in out.splitlines()[2:]}
    assert lines.pop("") == []
    assert list(lines) == ["import megalite", "the program's --help", "one step"]
    for median, _, ratio, other in lines.values():
        assert median > 0 and ratio == pytest.approx(median / other, abs=0.5)


def test_gpu_says_what_it_needs(printed, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="^this benchmark needs a CUDA device; PyTorch finds none: .*$"):
        printed("gpu", "")


@pytest.mark.parametrize(
    "name, arguments, package, told",
    [
        ("train_step", "--transformers --layers 1", "transformers", "--transformers needs the package transformers"),
        ("logits_transformers", "", "transformers", "this comparison needs transformers: pip install"),
        ("logits_megatron_core", "", "megatron", "this comparison needs Megatron Core: pip install"),
        ("files_megatron_core", "", "megatron", "this comparison needs Megatron Core: pip install"),
        ("preprocess", "--only datasets", "datasets", "'datasets.map' needs datasets: pip install datasets, or"),
        ("preprocess", "--memory", "gigatoken", "'megalite, gigatoken' needs gigatoken: pip install gigatoken, or"),
        ("preprocess", "--only JSON", "orjson", "'reading, JSON and gigatoken' needs orjson: pip install orjson, or"),
    ],
)
def test_a_missing_package_is_told_in_one_line(printed, monkeypatch, name, arguments, package, told):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        printed(name, arguments)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_an_interpreter_without_megatron_core_is_refused(printed):
    with pytest.raises(ConfigError, match="--megatron-python must be .*; /bin/false cannot import it"):
        printed("data_index", "--megatron-python /bin/false")


def test_every_benchmark_is_run_here_and_listed_in_the_documentation():
    """Each ends by ``run_main``, which turns an error of the user into one line and status 2 (tests/test_log.py)."""
    here = Path(__file__).read_text(encoding="utf-8")
    listed = re.findall(r"^python -m benchmarks\.(\w+)", (ROOT / "docs" / "benchmarks.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({path.stem for path in PROGRAMS} - PART_OF_ANOTHER)
    for name in listed:
        assert re.search(rf'printed\("{name}"|\("{name}", "', here), f"no test runs {name}"
        assert (ROOT / "benchmarks" / f"{name}.py").read_text().endswith("\n    run_main(main)\n")
    for name in PART_OF_ANOTHER:
        assert f'"{name}.py"' in (ROOT / "benchmarks" / "data_index.py").read_text()
