import os
import signal

import pytest

from megalite.data.preprocess.chunks import LineBlock, LineRange
from megalite.data.preprocess.encode import EncodeSettings
from megalite.data.preprocess.inputs import Block
from megalite.data.preprocess.pool import CHUNKS_PER_WORKER, Workers
from megalite.data.tokenizers import TokenizerOptions
from megalite.errors import DataError, DistributedError

SETTINGS = EncodeSettings(TokenizerOptions(tokenizer_type="NullTokenizer", vocab_size=10_000))


def numbered(number: int, num_ids: int = 1) -> LineBlock:
    return LineBlock(Block("x", number + 1, b'{"text": "%s"}' % b" ".join([b"%d" % number] * num_ids), number), "jsonl")


def test_results_come_in_order_and_chunks_are_read_only_a_little_ahead():
    num_read = 0

    def blocks():
        nonlocal num_read
        for number in range(40):
            num_read += 1
            yield numbered(number, 20_000 if number % 2 else 1)  # every other block takes much longer

    with Workers(2) as workers:
        for number, encoded in enumerate(workers.encode(SETTINGS, blocks())):
            assert encoded.position == encoded.columns[0].tokens[0] == number
            assert num_read <= number + 2 * CHUNKS_PER_WORKER
    assert num_read == 40


def test_an_error_is_raised_when_the_turn_of_its_chunk_comes(tmp_path):
    missing = [LineRange(str(tmp_path / name), "jsonl", 0, 1, 0) for name in ("first", "second")]
    with Workers(2) as workers:
        encoded = workers.encode(SETTINGS, [numbered(0, 50_000), *missing])
        assert next(encoded).columns[0].document_sequences.tolist() == [1]
        with pytest.raises(FileNotFoundError, match="first"):
            next(encoded)


def test_an_error_of_the_reader_is_raised():
    def blocks():
        yield numbered(0)
        raise DataError("the reader failed")

    with Workers(1) as workers, pytest.raises(DataError, match="the reader failed"):
        list(workers.encode(SETTINGS, blocks()))


def children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def worker_processes() -> list[int]:
    workers = []
    for pid in children():
        with open(f"/proc/{pid}/cmdline") as file:
            if "spawn_main" in file.read():
                workers.append(pid)
    return workers


def test_a_worker_that_is_killed_ends_the_run_with_a_sentence():
    with Workers(1) as workers:
        encoded = workers.encode(SETTINGS, map(numbered, range(1000)))
        next(encoded)
        (worker,) = worker_processes()
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(DistributedError, match=r"every worker process must live.*fewer --workers \(now 1\)"):
            list(encoded)


def test_stopping_early_ends_the_workers():
    with Workers(2) as workers:
        next(workers.encode(SETTINGS, map(numbered, range(1000))))
        assert len(worker_processes()) == 2
    assert not worker_processes()
