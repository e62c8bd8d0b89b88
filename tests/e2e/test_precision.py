"""16-bit runs as users start them: the curve of float32, overflows, and checkpoints of runs that have not moved yet."""

import math
import sys

import pytest

from megalite.checkpoint.store import open_store
from megalite.errors import NumericsError
from tests.e2e.launch import ROOT, curve, events, flags, run, trained

STEPS, HALF = 20, 5
FIRST_SCALE = 2.0**32
OVERFLOWING = {"fp16": True, "initial_loss_scale": FIRST_SCALE, "hysteresis": 2, "loss_scale_window": 3}
SHARDED = {"use_distributed_optimizer": True, "overlap_param_gather": True, "check_replicas": True}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Flags for a megabyte of this Python's standard library, tokenized by a tokenizer that is trained on it."""
    work = tmp_path_factory.mktemp("text")
    train = work / "train.jsonl"
    tokenizer = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", work / "tokenizer"]
    collect = ["--train", train, "--heldout", work / "heldout.jsonl", "--max-megabytes", "1"]
    for script, *options in (
        ["examples/quickstart/collect_stdlib.py", *collect],
        ["tools/train_tokenizer.py", "--input", train, "--vocab-size", "600", "--output-dir", work / "tokenizer"],
        ["tools/preprocess_data.py", "--input", train, "--output-prefix", work / "train", "--append-eod", *tokenizer],
    ):
        done = run([sys.executable, ROOT / script, *options])
        assert done.status == 0, done.err
    return {
        "data_path": work / "train_text_document",
        "tokenizer_type": "HuggingFaceTokenizer",
        "tokenizer_model": work / "tokenizer",
        "vocab_size": None,
    }


def losses(text, directory, num_processes, **fields):
    argv = flags(
        **text, num_layers=2, hidden_size=64, seq_length=64, max_position_embeddings=64, micro_batch_size=8,
        global_batch_size=16, train_iters=30, metrics_file=directory / "metrics.jsonl", **fields,
    )
    trained(num_processes, argv)
    return [loss for loss, _, _ in curve(directory / "metrics.jsonl").values()]


@pytest.fixture(scope="module")
def float32(text, tmp_path_factory):
    return losses(text, tmp_path_factory.mktemp("float32"), 1)


@pytest.mark.parametrize("also", [{}, {"fp32_residual_connection": True}, {"grad_reduce_in_bf16": True}], ids=str)
def test_bf16_stays_within_a_hundredth_of_the_float32_curve(text, float32, tmp_path, also):
    half = losses(text, tmp_path, 2, bf16=True, **SHARDED, **also)
    assert len(half) == len(float32) == 30 and float32[-1] < 0.85 * float32[0]
    assert half == pytest.approx(float32, rel=0.01) and half != float32


def options(corpus, directory, **fields):
    numbers = {"train_iters": STEPS, "lr_decay_style": "cosine", "lr_warmup_iters": 4, "hidden_dropout": 0.1}
    files = {"save": directory / "checkpoints", "save_interval": HALF, "metrics_file": directory / "metrics.jsonl"}
    return flags(data_path=corpus, **{**numbers, **files, **fields})


@pytest.fixture(scope="module")
def overflowing(corpus, tmp_path_factory):
    """A run whose first steps overflow, with a checkpoint from among them."""
    directory = tmp_path_factory.mktemp("overflowing")
    trained(2, options(corpus, directory, **OVERFLOWING, **SHARDED))
    return directory


def steps(directory):
    keys = ("iteration", "loss_scale", "num_skipped", "learning_rate", "consumed_samples", "loss")
    return [{key: event[key] for key in keys} for event in events(directory / "metrics.jsonl")]


def test_overflowing_steps_move_the_data_and_the_scale_and_nothing_else(overflowing):
    seen = steps(overflowing)
    skipped = [step["num_skipped"] for step in seen]
    first = skipped.index(0)
    assert first > HALF, "the checkpoint is to come before the first update"
    # The first overflow, and the first after a doubling, is tolerated; each further one halves the scale. It doubles
    # after three finite steps.
    scale, finite, tolerated = FIRST_SCALE, 0, False
    for number, step in enumerate(seen):
        assert step["loss_scale"] == scale and step["consumed_samples"] == 8 * (number + 1)
        finite = 0 if step["num_skipped"] else finite + 1
        if step["num_skipped"]:
            scale *= 0.5 if tolerated else 1
            tolerated = True
        elif finite % 3 == 0:
            scale, tolerated = 2 * scale, False
    # The rate is that of the updates so far: 0, then a warm-up of four.
    rates = [step["learning_rate"] for step in seen]
    assert rates[: first + 1] == [0.0] * (first + 1) and rates[first + 1] == pytest.approx(3e-3 / 4)
    assert all(math.isfinite(step["loss"]) for step in seen if not step["num_skipped"])


def test_a_checkpoint_before_the_first_update_is_whole_and_resumes(overflowing, corpus, tmp_path):
    store = open_store(overflowing / "checkpoints" / f"iter_{HALF:07d}")
    assert (
        store.meta["num_updates"] == store.meta["updated_samples"] == 0 and store.meta["consumed_samples"] == 8 * HALF
    )
    assert store.meta["loss_scaler"]["scale"] == FIRST_SCALE / 2 ** (HALF - 1)
    parameters = [name for name in store.names() if not name.startswith("optim.")]
    state = {f"optim.{slot}.{name}" for slot in ("param", "exp_avg", "exp_avg_sq") for name in parameters}
    assert state < set(store.names())
    load = {"load": overflowing / "checkpoints", "ckpt_step": HALF}
    trained(2, options(corpus, tmp_path, **load, **OVERFLOWING, **SHARDED))
    assert steps(tmp_path) == steps(overflowing)[HALF:]


def test_an_overflow_at_the_smallest_scale_ends_the_run(corpus, tmp_path, failing):
    smallest = {**OVERFLOWING, "min_loss_scale": FIRST_SCALE}
    error = failing(NumericsError, options(corpus, tmp_path, **smallest))
    assert "gradients must be finite at the smallest loss scale" in error and "use --bf16" in error
    assert [step["loss_scale"] for step in steps(tmp_path)] == [FIRST_SCALE], "the first overflow is tolerated"
