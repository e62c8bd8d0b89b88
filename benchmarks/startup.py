"""How long starting takes: importing, ``--help``, and a world of some processes to its first step.

Each beside the same without megalite: an empty Python, ``import torch``, and a world that does one all-reduce. The
status is 1 where a limit is exceeded threefold, which a busy machine alone hardly does.

    python benchmarks/startup.py --rounds 5
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.log import echo, progress, run_main

ROOT = Path(__file__).parent.parent
PROGRAM = str(ROOT / "pretrain_gpt.py")
PYTHON = [sys.executable, "-c"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""
FLAGS = (
    "--tensor-model-parallel-size 2 --num-layers 4 --hidden-size 128 "
    "--num-attention-heads 4 --seq-length 128 --micro-batch-size 4 --global-batch-size 8 --train-iters 1 --lr 1e-3 "
    "--eval-iters 0 --tokenizer-type NullTokenizer --vocab-size 1000 --distributed-backend gloo"
)


def commands(directory: Path, processes: int) -> dict[str, list[str]]:
    """What is timed, by name. All processes but two are pipeline stages."""
    (directory / "all_reduce.py").write_text(ALL_REDUCE)
    stages = ["--pipeline-model-parallel-size", str(processes // 2)]
    flags = [*FLAGS.split(), *stages, "--data-path", str(directory / "corpus")]
    return {
        "python": [*PYTHON, "pass"],
        "import megalite": [*PYTHON, "import megalite"],
        "import torch": [*PYTHON, "import torch"],
        "the program's --help": [sys.executable, PROGRAM, "--help"],
        "all-reduce": [*TORCHRUN, str(processes), str(directory / "all_reduce.py")],
        "one step": [*TORCHRUN, str(processes), PROGRAM, *flags],
    }


ROWS = (  # what, beside what, limit in seconds
    ("import megalite", "python", 2.0),
    ("the program's --help", "import torch", 4.0),
    ("one step", "all-reduce", 10.0),
)


def write_corpus(prefix: Path) -> None:
    """200 documents of 100 random tokens."""
    dice = np.random.default_rng(0)
    with IndexedDatasetBuilder(prefix, "uint16") as builder:
        for _ in range(200):
            builder.add_document(dice.integers(0, 1000, 100), [100])
        builder.finalize()


def seconds_of(command: list[str]) -> float:
    """Seconds from the start of a command to its end."""
    started = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, choices=(2, 4, 8), default=4, help="of the world")
    options = parser.parse_args()
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="startup-") as directory:
        write_corpus(Path(directory) / "corpus")
        for number in range(options.rounds):
            progress(f"round {number + 1} of {options.rounds}")
            for name, command in commands(Path(directory), options.processes).items():
                times.setdefault(name, []).append(seconds_of(command))
    echo(f"world of {options.processes}, {options.rounds} rounds\n")
    echo(f"{'':22} {'median s':>9} {'limit s':>8}   {'ratio':>6}")
    exceeded = False
    for name, other, limit in ROWS:
        median = statistics.median(times[name])
        ratio = statistics.median(mine / theirs for mine, theirs in zip(times[name], times[other]))
        echo(f"{name:22} {median:9.2f} {limit:8.1f}   {ratio:6.2f} x {other} ({statistics.median(times[other]):.2f} s)")
        exceeded |= median > 3 * limit
    return int(exceeded)


if __name__ == "__main__":
    run_main(main)
