"""Evaluation: one number, the mean over all tokens that count, however it is computed."""

import math

import pytest

from megalite.errors import ConfigError
from tests.e2e.launch import events, flags, trained

BATCHES = 3
WAYS = {
    "micro-batch 1": (1, {"micro_batch_size": 1}),
    "micro-batch 8": (1, {"micro_batch_size": 8}),
    "data 2": (2, {}),
    "data 2, micro-batch 4": (2, {"micro_batch_size": 4}),
    "pipeline 2": (2, {"pipeline_model_parallel_size": 2}),
    "pipeline 2, virtual 2, data 2": (
        4,
        {"pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 1},
    ),
    "tensor 2": (2, {"tensor_model_parallel_size": 2, "sequence_parallel": True}),
}


def evaluated(num_processes, corpus, directory, **fields):
    """What an evaluation without training reports, by set; ends of documents do not count, so masks are uneven."""
    numbers = {"split": "6,2,2", "eval_iters": BATCHES, "eod_mask_loss": True, "hidden_dropout": 0.1}
    fields = {"data_path": corpus, **numbers, **fields}
    trained(num_processes, flags(skip_train=True, metrics_file=directory / "metrics.jsonl", **fields))
    return {event["name"]: event for event in events(directory / "metrics.jsonl", "eval")}


@pytest.fixture(scope="module")
def reference(corpus, tmp_path_factory):
    return evaluated(1, corpus, tmp_path_factory.mktemp("reference"))


@pytest.mark.parametrize("way", WAYS)
def test_the_loss_does_not_depend_on_how(reference, corpus, tmp_path, way):
    num_processes, layout = WAYS[way]
    got = evaluated(num_processes, corpus, tmp_path, **layout)
    assert got.keys() == reference.keys() == {"validation", "test"}
    for name, expected in reference.items():
        assert got[name]["num_tokens"] == expected["num_tokens"]
        assert got[name]["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def test_it_is_the_mean_over_all_tokens(reference, corpus, tmp_path):
    """The mean of a longer evaluation follows from those of its batches, weighted by their tokens and not otherwise."""
    first = evaluated(1, corpus, tmp_path / "first", eval_iters=1, global_batch_size=8)["validation"]
    both = evaluated(1, corpus, tmp_path / "both", eval_iters=1, global_batch_size=16)["validation"]
    again = evaluated(1, corpus, tmp_path / "again", eval_iters=2, global_batch_size=8)["validation"]
    assert both["loss"] == pytest.approx(again["loss"], rel=1e-6) and both["num_tokens"] == again["num_tokens"]
    assert first["num_tokens"] < 8 * 32 and first["num_tokens"] * 2 != both["num_tokens"], "masks are uneven"
    assert math.log(101) - 0.3 < reference["validation"]["loss"] < math.log(101) + 0.3, "an untrained model guesses"


def test_bits_per_byte_are_those_of_the_text(reference):
    """The corpus has 0.35 tokens a byte: two digits and a space, or the end of a document."""
    for event in reference.values():
        tokens_per_byte = event["bits_per_byte"] * math.log(2) / event["loss"]
        assert 1 / 3 < tokens_per_byte < 0.4


def test_a_set_smaller_than_the_evaluation_is_read_again_with_a_warning(corpus, tmp_path, capfd):
    got = evaluated(1, corpus, tmp_path, eval_iters=20, split="95,5")
    assert got["validation"]["num_tokens"] > 0.9 * 20 * 8 * 32 and "test" not in got
    assert "warning: the valid split of " in capfd.readouterr().out


def test_no_evaluation_is_asked_for(corpus, tmp_path):
    fields = {"train_iters": 2, "eval_iters": 0, "eval_interval": 1}
    trained(1, flags(data_path=corpus, metrics_file=tmp_path / "metrics.jsonl", **fields))
    assert not events(tmp_path / "metrics.jsonl", "eval") and len(events(tmp_path / "metrics.jsonl")) == 2


def test_an_empty_split_is_left_out_with_a_notice_at_the_start(corpus, tmp_path, capfd):
    fields = {"split": "100,0,0", "eval_interval": 1, "eval_iters": 2, "train_iters": 2}
    trained(2, flags(data_path=corpus, metrics_file=tmp_path / "metrics.jsonl", **fields))
    out = capfd.readouterr().out
    assert out.count("warning: the valid split of ") == 1 and "holds no tokens and is left out" in out
    assert out.index("is left out") < out.index("iteration        1/")
    assert not events(tmp_path / "metrics.jsonl", "eval")


def test_nothing_to_evaluate_on_is_an_error(corpus, tmp_path, failing):
    fields = {"skip_train": True, "eval_iters": 2, "split": "100,0,0", "train_iters": None}
    error = failing(ConfigError, flags(data_path=corpus, **fields))
    assert "skip_train" in error and "split" in error


def test_several_validation_corpora(corpus, tmp_path):
    fields = {"data_path": None, "split": None, "valid_data_path": [corpus, corpus], "train_data_path": corpus}
    assert evaluated(1, corpus, tmp_path, **fields)["validation"]["num_tokens"] > 0


def test_a_longer_interval_than_the_run_evaluates_at_the_end(corpus, tmp_path):
    """And the last batch is a whole one where the samples are no multiple of it."""
    fields = {"train_iters": None, "train_samples": 20, "eval_interval": 100, "eval_iters": 1}
    save = {"save": tmp_path / "checkpoints", "save_interval": 100}
    trained(1, flags(data_path=corpus, metrics_file=tmp_path / "metrics.jsonl", **fields, **save))
    assert [event["consumed_samples"] for event in events(tmp_path / "metrics.jsonl")] == [8, 16]
    assert [event["iteration"] for event in events(tmp_path / "metrics.jsonl", "eval")] == [2]
    assert (tmp_path / "checkpoints" / "iter_0000002" / "index.json").exists(), "the last state is always saved"
