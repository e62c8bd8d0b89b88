"""The contenders of benchmarks/preprocess.py: each prepares, does its work once, and returns how long it took."""

import functools
import json
import multiprocessing
import os
import resource
import time
from collections import deque
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Sequence

import numpy as np
import tokenizers

from megalite.data.indexed import optimal_dtype
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.data.preprocess.chunks import chunks
from megalite.data.preprocess.encode import load
from megalite.data.preprocess.options import PreprocessOptions
from megalite.data.preprocess.run import preprocess
from megalite.data.tokenizers import TokenizerOptions

BATCH_CHARACTERS = 1 << 20


class Times(NamedTuple):
    """Seconds on the clock, and of all processors together; bytes of the largest process at its peak."""

    seconds: float
    processor: float
    peak_bytes: int


def timed(work: Callable[[], object]) -> Times:
    """How long ``work`` takes, child processes that end within it included."""
    start, processor = time.perf_counter(), _processor_seconds()
    work()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    peak = max(usage.ru_maxrss for usage in usages) * 1024
    return Times(time.perf_counter() - start, _processor_seconds() - processor, peak)


def _processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _megalite(backend: str, corpus: Path, workers: int) -> Times:
    options = PreprocessOptions(
        input=(str(corpus),),
        output_prefix=str(corpus.parent / "megalite"),
        append_eod=True,
        workers=workers,
        log_interval=1 << 30,
        tokenizer_backend=backend,
        tokenizer=TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(corpus.parent)),
    )
    return timed(lambda: preprocess(options))


def _tokenizer(corpus: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(corpus.parent / "tokenizer.json"))


def _batches(corpus: Path) -> list[list[str]]:
    batches: list[list[str]] = [[]]
    size = 0
    with open(corpus, encoding="utf-8") as file:
        for line in file:
            if size >= BATCH_CHARACTERS:
                batches.append([])
                size = 0
            batches[-1].append(json.loads(line)["text"])
            size += len(batches[-1][-1])
    return batches


def _bare_tokenizers(corpus: Path, workers: int) -> Times:
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    tokenizer, batches = _tokenizer(corpus), _batches(corpus)
    return timed(lambda: deque(map(tokenizer.encode_batch_fast, batches), maxlen=0))


def _bare_gigatoken(corpus: Path, workers: int) -> Times:
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    import awkward  # noqa: F401  (loaded by the first call otherwise)
    import gigatoken

    tokenizer, batches = gigatoken.Tokenizer(_tokenizer(corpus)), _batches(corpus)
    return timed(lambda: deque((tokenizer.encode_batch(batch, parallel=workers > 1) for batch in batches), maxlen=0))


def _in_turn(corpus: Path, workers: int) -> Times:
    """The least that ``workers`` processes can do: each reads its share, takes the texts out of the JSON, encodes them
    and drops the ids. Nobody collects anything, and all is imported before the clock starts.
    """
    context = multiprocessing.get_context("spawn")
    ready, go = context.Barrier(workers + 1), context.Barrier(workers + 1)
    shares = [(corpus, worker, workers, ready, go) for worker in range(workers)]
    processes = [context.Process(target=_read_and_encode, args=share) for share in shares]
    for process in processes:
        process.start()
    ready.wait()

    def work() -> None:
        go.wait()
        for process in processes:
            process.join()

    return timed(work)


def _read_and_encode(corpus: Path, worker: int, workers: int, ready: Barrier, go: Barrier) -> None:
    import gigatoken
    import orjson

    tokenizer = gigatoken.Tokenizer(_tokenizer(corpus))
    tokenizer.encode_batch(["a"], parallel=False)
    ready.wait()
    go.wait()
    with open(corpus, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size * worker // workers)
        if worker:
            file.readline()
        while file.tell() < size * (worker + 1) // workers and (lines := file.readlines(BATCH_CHARACTERS)):
            tokenizer.encode_batch([orjson.loads(line)["text"] for line in lines], parallel=False)


def _reading(corpus: Path, workers: int) -> Times:
    """What any tool must do before it encodes: read the file and take the texts out of the JSON, as megalite does."""
    assert workers == 1, "a rate of one process"
    parts = chunks([corpus], "jsonl", ("text",))
    return timed(lambda: deque((list(load(part).records(("text",))) for part in parts), maxlen=0))


@functools.cache
def _recipe_tokenizer(path: str) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(path)


def _recipe_encode(path: str, line: str) -> list[int]:
    ids = _recipe_tokenizer(path).encode(json.loads(line)["text"]).ids
    return ids + [0] if ids else ids


def _run_recipe(corpus: Path, workers: int) -> None:
    encode = functools.partial(_recipe_encode, str(corpus.parent / "tokenizer.json"))
    with (
        open(corpus, encoding="utf-8") as file,
        multiprocessing.get_context("fork").Pool(workers) as pool,
        IndexedDatasetBuilder(corpus.parent / "recipe", optimal_dtype(8192)) as builder,
    ):
        for ids in pool.imap(encode, file, 32):
            builder.add_document(ids, [len(ids)] if ids else [])
        builder.finalize()
        pool.close()
        pool.join()


def _recipe(corpus: Path, workers: int) -> Times:
    return timed(lambda: _run_recipe(corpus, workers))


def _map_encode(path: str, batch: dict[str, list[str]]) -> dict[str, list[np.ndarray]]:
    encodings = _recipe_tokenizer(path).encode_batch_fast(batch["text"])
    return {"ids": [np.array(encoding.ids, np.uint16) for encoding in encodings]}


def _datasets(corpus: Path, workers: int) -> Times:
    os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", HF_HOME=str(corpus.parent / "huggingface"))
    import datasets

    datasets.disable_progress_bars()
    loaded = datasets.Dataset.from_json(str(corpus))
    encode = functools.partial(_map_encode, str(corpus.parent / "tokenizer.json"))
    return timed(
        lambda: loaded.map(
            encode, batched=True, num_proc=workers, remove_columns=loaded.column_names, load_from_cache_file=False
        )
    )


CONTENDERS: dict[str, Callable[[Path, int], Times]] = {
    "megalite, tokenizers": functools.partial(_megalite, "tokenizers"),
    "bare tokenizers": _bare_tokenizers,
    "Megatron-LM's recipe": _recipe,
    "datasets.map": _datasets,
    "megalite, gigatoken": functools.partial(_megalite, "gigatoken"),
    "bare gigatoken": _bare_gigatoken,
    "reading, JSON and gigatoken": _in_turn,
    "reading and JSON alone": _reading,
}


def train(texts: Sequence[str] | Iterator[str], path: Path) -> None:
    """A byte-level BPE of 8192 tokens, as GPT-2's, saved as ``path``."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=8192, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
