"""What stands between the start of a job and its first sample: building indices, and finding hundreds of them cached.

Building: the indices of a corpus of many documents over several epochs, cached on disk, beside megatron-core's in its
own Python (--megatron-python), each in a fresh process per round; the arrays are compared. Starting: a job over 500
corpora, cold and with its caches, beside the same job over one; a process with a tiny model that trains one step.

    python -m benchmarks.data_index --megatron-python /path/to/python
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Sequence

import numpy as np

from megalite.config import DataConfig
from megalite.data.build import Wanted, build_datasets
from megalite.data.dataset import Request
from megalite.data.indexed import Header, bin_path, idx_path, pointers
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.errors import ConfigError
from megalite.log import echo, progress, run_main

SEQ_LENGTH, SEED, SPLIT = 2048, 1234, "100,0,0"
ROOT = Path(__file__).parent.parent
ARRAYS = ("document_index", "sample_index", "shuffle_index")
JOB = """--num-layers 1 --hidden-size 16 --num-attention-heads 1 --seq-length 64 --max-position-embeddings 64
    --micro-batch-size 1 --global-batch-size 1 --train-iters 1 --lr 1e-3 --eval-iters 0 --split 100,0,0
    --tokenizer-type NullTokenizer --vocab-size 99 --num-workers 0""".split()


class IntegerVocabulary:
    """As much of a tokenizer as data sets look at."""

    vocab_size, eod, fingerprint = 65000, 0, ""


def write_large_corpus(prefix: Path, num_documents: int) -> int:
    """An index of documents of 1 to 199 tokens, and a file of as many zeros that takes no space; returns the tokens."""
    lengths = np.random.default_rng(0).integers(1, 200, num_documents).astype(np.int32)
    with open(idx_path(str(prefix)), "wb") as file:
        file.write(Header(np.dtype("<u2"), num_documents, num_documents + 1).pack())
        for array in (lengths, pointers(lengths, 2), np.arange(num_documents + 1, dtype=np.int64)):
            file.write(array.tobytes())
    num_tokens = int(lengths.sum(dtype=np.int64))
    with open(bin_path(str(prefix)), "wb") as file:
        file.truncate(2 * num_tokens)
    return num_tokens


def write_small_corpora(directory: Path, count: int) -> list[str]:
    """Corpora of 1000 documents."""
    random = np.random.default_rng(0)
    for number in range(count):
        lengths = random.integers(1, 40, 1000)
        with IndexedDatasetBuilder(directory / f"corpus{number}", "uint16") as builder:
            builder.add_documents(random.integers(0, 99, lengths.sum()), lengths, np.ones(1000, int))
            builder.finalize()
    return [str(directory / f"corpus{number}") for number in range(count)]


def build_once(prefix: str, num_samples: int, cache: str) -> dict[str, float]:
    """Build the indices in this process: seconds, and by how much memory rose at its peak."""
    data = DataConfig(data_path=(prefix,), split=SPLIT, data_cache_path=cache)
    before = _resident("VmRSS")
    started = time.perf_counter()
    build_datasets(Request(SEQ_LENGTH, SEED, data, IntegerVocabulary()), Wanted(num_samples)).prepare()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "bytes": _resident("VmHWM") - before}


def _resident(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def check_megatron(python: str) -> None:
    """Refuse an interpreter that cannot build the indices of megatron-core."""
    done = subprocess.run([python, "-c", "import megatron.core"], stderr=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ConfigError(
            f"--megatron-python must be the interpreter of an environment that holds megatron-core; {python} cannot "
            "import it: pip install megatron-core there, or leave the flag out."
        )


def race_builders(directory: Path, options: argparse.Namespace) -> None:
    """Print a table of both builders."""
    prefix = str(directory / "large")
    num_tokens = write_large_corpus(Path(prefix), options.documents)
    # Most of the last epoch is wanted, so that all epochs are shuffled together.
    num_samples = int((options.epochs - 0.1) * num_tokens) // SEQ_LENGTH
    asked = [prefix, str(SEQ_LENGTH), str(num_samples), str(SEED)]
    commands = {"megalite": [sys.executable, "-m", "benchmarks.data_index", "--build", prefix, str(num_samples)]}
    if options.megatron_python:
        commands["megatron-core"] = [options.megatron_python, str(ROOT / "benchmarks" / "megatron_index.py"), *asked]
    results: dict[str, list[dict]] = {name: [] for name in commands}
    for number in range(options.rounds):
        caches = {name: directory / f"{name}-{number}" for name in commands}
        for name in list(commands)[:: 1 if number % 2 else -1]:
            progress(f"round {number + 1} of {options.rounds}: {name}")
            caches[name].mkdir()
            results[name].append(json.loads(_output([*commands[name], str(caches[name])]).splitlines()[-1]))
        _compare(list(caches.values()))
    echo(f"{options.documents:,} documents, {num_tokens:,} tokens, {options.epochs} epochs, {num_samples:,} samples\n")
    echo("| builder | seconds (lowest, highest) | peak memory (MiB) |\n|---|---|---|")
    for name, runs in results.items():
        seconds = [run["seconds"] for run in runs]
        memory = max(run["bytes"] for run in runs) / 2**20
        echo(f"| {name} | {statistics.median(seconds):.1f} ({min(seconds):.1f}, {max(seconds):.1f}) | {memory:,.0f} |")


def _compare(caches: Sequence[Path]) -> None:
    for name in ARRAYS:
        found = [np.load(next(cache.rglob(f"*{name}.npy")), mmap_mode="r") for cache in caches]
        assert all(np.array_equal(found[0], other) for other in found[1:]), f"{name} differs"


def race_starts(directory: Path, options: argparse.Namespace) -> None:
    """Print a table of the starts of jobs."""
    prefixes = write_small_corpora(directory, options.prefixes)
    blend = directory / "blend.txt"
    blend.write_text("\n".join(f"{1 + number % 7} {prefix}" for number, prefix in enumerate(prefixes)))
    data = DataConfig(data_args_path=str(blend), split=SPLIT, num_dataset_builder_threads=4)
    echo(f"\n| {options.prefixes} corpora | seconds |\n|---|---|")
    for name in ("open, build and cache their indices", "open them with their indices cached"):
        started = time.perf_counter()
        build_datasets(Request(64, SEED, data, IntegerVocabulary()), Wanted(1)).prepare(4)
        echo(f"| {name} | {time.perf_counter() - started:.2f} |")
    jobs = {
        "a job over one of them": ["--data-path", prefixes[0]],
        "a job over all of them": ["--data-args-path", str(blend)],
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(options.rounds + 1):
        for name, flags in jobs.items():
            started = time.perf_counter()
            _output([sys.executable, str(ROOT / "pretrain_gpt.py"), *JOB, *flags])
            seconds[name].append(time.perf_counter() - started)
    for name, runs in seconds.items():
        echo(f"| {name}, from the shell to its end after one step | {statistics.median(runs[1:]):.2f} |")


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stderr}"
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--prefixes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megatron-python", help="interpreter of an environment that holds megatron-core")
    parser.add_argument(
        "--directory", help="where corpora and caches are written for a while; default: a temporary one"
    )
    parser.add_argument("--build", nargs=3, metavar=("PREFIX", "SAMPLES", "CACHE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        prefix, num_samples, cache = options.build
        echo(json.dumps(build_once(prefix, int(num_samples), cache)))
        return
    if options.megatron_python:
        check_megatron(options.megatron_python)
    for part in (race_builders, race_starts):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            part(Path(directory), options)


if __name__ == "__main__":
    run_main(main)
