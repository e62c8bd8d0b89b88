"""How fast is preprocessing, beside the bare encoders and beside the usual recipes? And how much memory does it take?

Corpus: the Python sources installed on this machine (the standard library, then site-packages), or ``--corpus FILE`` of
JSON lines. Tokenizer: byte-level BPE of 8192 tokens trained on the first 8 MB of it. Contenders, with 1 and 2 workers
(``--workers``), each in a process of its own, one after another within every round:

- megalite: tools/preprocess_data.py, file to .bin/.idx, start of the workers included, with either backend;
- bare tokenizers: encode_batch_fast on the texts in memory, that many threads, batches of 1 MB, results dropped;
- bare gigatoken: encode_batch in the same way;
- Megatron-LM's recipe, re-created: one document a task through multiprocessing.Pool.imap (chunks of 32), json.loads and
  encode in Python, documents written one at a time;
- datasets.map with the same fast tokenizer, batches of 1000, num_proc processes;
- reading, JSON and gigatoken: the least that a tool must do, in so many processes that share nothing: orjson, then
  encode_batch; start-up not counted, ids dropped;
- reading and JSON alone: what megalite does before it encodes, in one process.

gigatoken and reading are so fast that they get the corpus several times over (``--copies``), for start-up would hide
the rate. Prints the median rate of each, what it costs in processor time (which other programs disturb less), and
megalite's ratio to the others of its backend within the rounds (lowest, median, highest). ``--memory`` instead prints
the peak memory of the largest process while the input grows.
"""

import argparse
import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Iterable, Iterator

from benchmarks.preprocess_contenders import CONTENDERS, Times, train
from megalite.errors import ConfigError
from megalite.log import echo, progress, run_main

FAST = ("megalite, gigatoken", "bare gigatoken", "reading, JSON and gigatoken", "reading and JSON alone")
OURS = ("megalite, tokenizers", "megalite, gigatoken")
PACKAGES = {
    "datasets.map": ("datasets",),
    "megalite, gigatoken": ("gigatoken",),
    "bare gigatoken": ("gigatoken", "awkward"),
    "reading, JSON and gigatoken": ("gigatoken", "orjson"),
}
"""What contenders need beyond megalite's own requirements."""

Racing = list[tuple[str, int]]
"""Names of contenders, and the numbers of their workers."""


def installed_sources() -> Iterator[str]:
    """The text of each Python file installed here."""
    roots = dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    for path in itertools.chain.from_iterable(sorted(root.rglob("*.py")) for root in roots):
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        if text:
            yield text


def check_packages(names: Iterable[str]) -> None:
    """Refuse contenders that need a package which is not installed."""
    for name in names:
        missing = [package for package in PACKAGES.get(name, ()) if not importlib.util.find_spec(package)]
        if missing:
            raise ConfigError(
                f"the contender '{name}' needs {' and '.join(missing)}: pip install {' '.join(missing)}, or name the "
                "contenders that shall race with --only."
            )


def make_corpus(directory: Path, given: Path | None, megabytes: int, copies: int) -> tuple[int, int]:
    """``corpus.jsonl``, ``large.jsonl`` and the tokenizer in ``directory``; documents and bytes of the first."""
    lines = given.read_text(encoding="utf-8").splitlines(keepends=True) if given else None
    texts = (json.loads(line)["text"] for line in lines) if lines else installed_sources()
    num_documents = num_bytes = 0
    sample: list[str] = []
    with open(directory / "corpus.jsonl", "w", encoding="utf-8") as file:
        for text in texts:
            num_bytes += file.write(json.dumps({"text": text}) + "\n")
            num_documents += 1
            if num_bytes < 8_000_000:
                sample.append(text)
            if num_bytes >= megabytes * 1_000_000:
                break
    train(sample, directory / "tokenizer.json")
    content = (directory / "corpus.jsonl").read_bytes()
    with open(directory / "large.jsonl", "wb") as file:
        for _ in range(copies):
            file.write(content)
    return num_documents, num_bytes


def time_in_process(name: str, workers: int, corpus: Path) -> Times:
    """Times of one contender in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.preprocess", "--contender", name, "--workers", str(workers)]
    result = subprocess.run([*command, "--corpus", str(corpus)], check=True, capture_output=True, text=True)
    return Times(*json.loads(result.stdout.splitlines()[-1]))


def contenders(only: list[str], workers: list[int]) -> Racing:
    """Name and workers of each that is asked for."""
    names = [name for name in CONTENDERS if not only or any(part in name for part in only)]
    racing = [(name, 1 if name == FAST[-1] else number) for number in workers for name in names]
    return list(dict.fromkeys(racing))


def compare(directory: Path, racing: Racing, sizes: tuple[int, int], arguments: argparse.Namespace) -> None:
    times: dict[tuple[str, int], list[Times]] = {contender: [] for contender in racing}
    for number in range(arguments.rounds):
        # every other round backwards, so that a slow drift of the machine favours nobody
        for name, workers in racing[:: 1 if number % 2 else -1]:
            corpus = directory / ("large.jsonl" if name in FAST else "corpus.jsonl")
            times[name, workers].append(time_in_process(name, workers, corpus))
            progress(f"round {number + 1}: {name} {workers}: {times[name, workers][-1].seconds:.2f} s")
    echo("| contender | workers | documents/s | MB/s | MB a processor second | megalite / it |")
    echo("|---|---|---|---|---|---|")
    for (name, workers), own in times.items():
        num_documents, num_bytes = (size * (arguments.copies if name in FAST else 1) for size in sizes)
        seconds, processor = (statistics.median(column) for column in list(zip(*own))[:2])
        rates = f"{num_documents / seconds:,.0f} | {num_bytes / seconds / 1e6:.1f} | {num_bytes / processor / 1e6:.1f}"
        echo(f"| {name} | {workers} | {rates} | {_ratio(times, name, workers)} |")


def _ratio(times: dict[tuple[str, int], list[Times]], name: str, workers: int) -> str:
    ours = times.get((OURS[name in FAST], workers))
    if name in OURS or not ours:
        return ""
    ratios = sorted(other.seconds / own.seconds for own, other in zip(ours, times[name, workers], strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def compare_memory(directory: Path, num_bytes: int) -> None:
    echo("| input | documents | peak memory of the largest process |\n|---|---|---|")
    content = (directory / "corpus.jsonl").read_bytes()
    for copies in (1, 4, 16, 40):
        grown = directory / "grown.jsonl"
        with open(grown, "wb") as file:
            for _ in range(copies):
                file.write(content)
        peak = time_in_process(OURS[1], 2, grown).peak_bytes
        num_documents = copies * content.count(b"\n")
        echo(f"| {copies * num_bytes / 1e6:,.0f} MB | {num_documents:,} | {peak / 2**20:,.0f} MiB |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corpus", type=Path, help="JSON lines with a key 'text', instead of the installed sources")
    parser.add_argument("--megabytes", type=int, default=50, help="how much of the corpus is taken")
    parser.add_argument("--copies", type=int, default=6, help="how often the fast contenders get it")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers that race")
    parser.add_argument("--only", nargs="+", default=[], help="only the contenders whose names hold one of these")
    parser.add_argument("--memory", action="store_true", help="peak memory while the input grows")
    parser.add_argument("--contender", choices=sorted(CONTENDERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        echo(json.dumps(CONTENDERS[arguments.contender](arguments.corpus, *arguments.workers)))
        return
    racing = [(OURS[1], 2)] if arguments.memory else contenders(arguments.only, arguments.workers)
    check_packages(name for name, _ in racing)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sizes = make_corpus(directory, arguments.corpus, arguments.megabytes, arguments.copies)
        echo(f"{sizes[0]:,} documents, {sizes[1] / 1e6:.1f} MB of JSON lines, {arguments.rounds} rounds")
        if arguments.memory:
            compare_memory(directory, sizes[1])
        else:
            compare(directory, racing, sizes, arguments)


if __name__ == "__main__":
    run_main(main)
