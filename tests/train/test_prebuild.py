"""Indices built offline are the ones that a run reads."""

import json

import numpy as np
import pytest

from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.errors import ConfigError
from megalite.train.prebuild import prebuild
from megalite.train.pretrain import pretrain

FLAGS = (
    "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --micro-batch-size 2 --train-iters 2 "
    "--lr 1e-3 --eval-iters 1 --tokenizer-type NullTokenizer --vocab-size 50 --num-workers 0"
).split()


FIM = "--fim-data --fim-prefix-token 47 --fim-middle-token 48 --fim-suffix-token 49".split()


@pytest.fixture
def prefixes(tmp_path):
    for name in ("first", "second"):
        with IndexedDatasetBuilder(tmp_path / name, np.uint16) as builder:
            for number in range(40):
                length = number % 7 + 5 + len(name)
                builder.add_document(np.arange(length) % 50, [length])
            builder.finalize()
    return [str(tmp_path / name) for name in ("first", "second")]


@pytest.fixture
def data(prefixes, tmp_path):
    return ["--data-path", prefixes[0], "--data-cache-path", str(tmp_path / "cache"), "--split", "80,20,0"]


def indices(tmp_path):
    """The entries of the cache, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}


def test_a_run_finds_every_index_that_was_built_offline(data, tmp_path):
    assert prebuild([*FLAGS, *data, "--global-batch-size", "4", "--pipeline-model-parallel-size", "1"]) == 0
    before = indices(tmp_path)
    assert sorted(name.rpartition("-")[0] for name in before) == ["gpt-train", "gpt-valid"]
    assert pretrain([*FLAGS, *data, "--global-batch-size", "4"]) == 0
    assert indices(tmp_path) == before


def test_of_every_kind_of_data(prefixes, tmp_path):
    """Named sets in full, rearranged documents, corpora listed in a file, and a mix that has changed on the way."""
    paths = {"train": ["1", prefixes[0], "2", prefixes[1]], "valid": prefixes}
    (tmp_path / "paths.json").write_text(json.dumps(paths))
    sets = ["--multiple-validation-sets", "--full-validation", "--num-dataset-builder-threads", "2"]
    run = str(tmp_path / "run")
    save = ["--save", run, "--load", run, "--save-interval", "1", "--allow-data-change"]
    argv = [*FLAGS, *FIM, *sets, *save, "--data-cache-path", str(tmp_path / "cache"), "--global-batch-size", "4"]
    argv += ["--per-split-data-args-path", str(tmp_path / "paths.json")]
    for train, leave in ((paths["train"], ["--exit-interval", "1"]), (["5", *paths["train"][1:]], [])):
        (tmp_path / "paths.json").write_text(json.dumps({**paths, "train": train}))
        assert prebuild(argv) == 0
        before = indices(tmp_path)
        assert pretrain([*argv, *leave]) == 0
        assert indices(tmp_path) == before
    kinds = [name.rpartition("-")[0] for name in before]
    assert kinds.count("gpt-valid") == 2 and kinds.count("blend") == 2


def test_the_global_batch_must_be_given(data):
    with pytest.raises(ConfigError, match="global_batch_size must be given"):
        prebuild([*FLAGS, *data])
