"""How fast is preprocessing, beside the bare tokenizer and beside the usual recipe?

Corpus: the standard library's source, as the quickstart collects it. Tokenizer: byte-level BPE of 8192 tokens trained on
it. Contenders, each in a process of its own, one after another within every round:

- megalite W: tools/preprocess_data.py with W workers, file to .bin/.idx, start-up included;
- bare W: tokenizers.encode_batch_fast on the texts in memory, W threads, batches of 1 MB, results dropped;
- recipe W: Megatron-LM's way of doing it, re-created: one document a task through multiprocessing.Pool.imap (chunks of
  32) with W processes, json.loads and encode in Python, documents written one at a time.

Prints the median rate of each, what it costs in processor time (which other programs on the machine disturb less), and
megalite's ratio to the others within the rounds (lowest, median, highest).
"""

import argparse
import functools
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import tokenizers

from megalite.data.indexed import optimal_dtype
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.preprocess.options import PreprocessOptions
from megalite.data.preprocess.run import preprocess
from megalite.data.tokenizer_training.run import TrainTokenizerOptions, train_tokenizer
from megalite.data.tokenizers import TokenizerOptions
from megalite.log import echo, progress

ROOT = Path(__file__).parent.parent
CONTENDERS = [(name, workers) for workers in (1, 2) for name in ("megalite", "bare", "recipe")]


class Times(NamedTuple):
    """Seconds on the clock, and of all processors together."""

    seconds: float
    processor: float


def timed(work: Callable[[], object]) -> Times:
    """How long ``work`` takes, child processes that end within it included."""
    start, processor = time.perf_counter(), _processor_seconds()
    work()
    return Times(time.perf_counter() - start, _processor_seconds() - processor)


def _processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def time_megalite(directory: Path, workers: int) -> Times:
    options = PreprocessOptions(
        input=(str(directory / "corpus.jsonl"),),
        output_prefix=str(directory / "megalite"),
        append_eod=True,
        workers=workers,
        log_interval=1 << 30,
        tokenizer=TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(directory)),
    )
    return timed(lambda: preprocess(options))


def time_bare(directory: Path, workers: int) -> Times:
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    with open(directory / "corpus.jsonl", encoding="utf-8") as file:
        batches = list(_batches([json.loads(line)["text"] for line in file], 1 << 20))
    return timed(lambda: deque(map(tokenizer.encode_batch_fast, batches), maxlen=0))


def _batches(texts: list[str], num_characters: int) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if sum(map(len, batch)) >= num_characters:
            yield batch
            batch = []
    yield batch


@functools.cache
def _recipe_tokenizer(path: str) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(path)


def _recipe_encode(path: str, line: str) -> list[int]:
    ids = _recipe_tokenizer(path).encode(json.loads(line)["text"]).ids
    return ids + [0] if ids else ids


def _recipe(directory: Path, workers: int) -> None:
    encode = functools.partial(_recipe_encode, str(directory / "tokenizer.json"))
    with (
        open(directory / "corpus.jsonl", encoding="utf-8") as file,
        multiprocessing.get_context("fork").Pool(workers) as pool,
        IndexedDatasetBuilder(directory / "recipe", optimal_dtype(8192)) as builder,
    ):
        for ids in pool.imap(encode, file, 32):
            builder.add_document(ids, [len(ids)] if ids else [])
        builder.finalize()
        pool.close()
        pool.join()


def time_recipe(directory: Path, workers: int) -> Times:
    return timed(lambda: _recipe(directory, workers))


TIME: dict[str, Callable[[Path, int], Times]] = {"megalite": time_megalite, "bare": time_bare, "recipe": time_recipe}


def make_corpus(directory: Path, copies: int) -> tuple[int, int]:
    """Corpus and tokenizer in ``directory``; number of documents and bytes of the corpus."""
    collect = ROOT / "examples" / "quickstart" / "collect_stdlib.py"
    one = directory / "one.jsonl"
    command = [sys.executable, collect, "--train", one, "--heldout", directory / "heldout.jsonl"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    content = one.read_bytes()
    (directory / "corpus.jsonl").write_bytes(content * copies)
    train_tokenizer(TrainTokenizerOptions(input=(str(one),), output_dir=str(directory), vocab_size=8192))
    return content.count(b"\n") * copies, len(content) * copies


def time_in_process(name: str, workers: int, directory: Path) -> Times:
    """Times of one contender in a fresh process."""
    command = [sys.executable, __file__, "--contender", name, "--workers", str(workers), "--directory", str(directory)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return Times(*map(float, result.stdout.splitlines()[-1].split()))


def compare(rounds: int, copies: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        num_documents, num_bytes = make_corpus(Path(directory), copies)
        echo(f"{num_documents} documents, {num_bytes / 1e6:.1f} MB of JSON lines, {rounds} rounds")
        times: dict[tuple[str, int], list[Times]] = {contender: [] for contender in CONTENDERS}
        for number in range(rounds):
            # every other round backwards, so that a slow drift of the machine favours nobody
            for contender in CONTENDERS[:: 1 if number % 2 else -1]:
                times[contender].append(time_in_process(*contender, Path(directory)))
                progress(f"round {number + 1}: {contender[0]} {contender[1]}: {times[contender][-1].seconds:.2f} s")
    for (name, workers), own in times.items():
        seconds, processor = (statistics.median(column) for column in zip(*own))
        text = f"{name:>8} {workers}: {num_documents / seconds:6,.0f} docs/s {num_bytes / seconds / 1e6:6.2f} MB/s"
        text += f" {num_bytes / processor / 1e6:6.2f} MB a processor second"
        if name != "megalite":
            ratios = sorted(other.seconds / ours.seconds for ours, other in zip(times["megalite", workers], own, strict=True))
            text += f"   megalite is {statistics.median(ratios):.2f}x as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        echo(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copies", type=int, default=3, help="how often the standard library's source is repeated")
    parser.add_argument("--contender", choices=sorted(TIME), help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        times = TIME[arguments.contender](arguments.directory, arguments.workers)
        echo(f"{times.seconds} {times.processor}")
    else:
        compare(arguments.rounds, arguments.copies)


if __name__ == "__main__":
    main()
