"""Indices built offline are the ones that a run reads."""

import numpy as np
import pytest

from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.errors import ConfigError
from megalite.train.prebuild import prebuild
from megalite.train.pretrain import pretrain

FLAGS = (
    "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --micro-batch-size 2 --train-iters 2 --lr 1e-3 "
    "--eval-iters 1 --tokenizer-type NullTokenizer --vocab-size 50 --split 80,20,0 --num-workers 0"
).split()


@pytest.fixture
def data(tmp_path):
    prefix = str(tmp_path / "corpus")
    with IndexedDatasetBuilder(prefix, np.uint16) as builder:
        for number in range(40):
            builder.add_document(np.arange(number % 7 + 5) % 50, [number % 7 + 5])
        builder.finalize()
    return ["--data-path", prefix, "--data-cache-path", str(tmp_path / "cache")]


def test_a_run_finds_every_index_that_was_built_offline(data, tmp_path):
    assert prebuild([*FLAGS, *data, "--global-batch-size", "4", "--pipeline-model-parallel-size", "1"]) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    assert len(before) > 0
    assert pretrain([*FLAGS, *data, "--global-batch-size", "4"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == before


def test_the_global_batch_must_be_given(data):
    with pytest.raises(ConfigError, match="global_batch_size must be given"):
        prebuild([*FLAGS, *data])
