"""What cannot work is refused before it starts: one message with the numbers and what to change."""

import re

import pytest

from megalite.errors import ConfigError, DataError, MegaliteError, TokenizerError
from megalite.train.pretrain import pretrain
from tests.e2e.launch import TINY, curve, flags, printed, python, run, torchrun, trained

TP, PP = "tensor_model_parallel_size", "pipeline_model_parallel_size"
FIRST, LAST = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"
VPP = "num_virtual_stages_per_pipeline_rank"
HEADS = "num_attention_heads"
SAMPLES = {"train_iters": None, "train_samples": 80}
CASES = [  # number of processes, changed flags, what the message must say
    # the layout and the number of processes
    (1, {TP: 2}, r"number of processes \(1\) must be divisible by .* = 2: start 2 processes"),
    (3, {TP: 2}, r"number of processes \(3\) must be divisible by .* = 2: start 2 or 4 processes"),
    (4, {TP: 2, PP: 3, "num_layers": 6}, r"number of processes \(4\) .* \(2\) x .* \(3\) .* = 6: start 6 processes"),
    (1, {VPP: 2, "pipeline_model_parallel_layout": "Et*2|t*2L"}, "virtual pipeline stages must be set in one way"),
    # layers and stages
    (2, {PP: 2, "num_layers": 5}, r"num_layers \(5\)"),
    (4, {PP: 4, "num_layers": 3}, r"num_layers \(3\)"),
    (2, {PP: 2, "num_layers": 10, "num_layers_per_virtual_pipeline_stage": 2}, r"\(2\) must divide .* 10 layers"),
    (2, {PP: 2, FIRST: 1, LAST: 2}, "must hold all 4 layers; given .*-first-.* 1 and .*-last-.* 2, which is 3"),
    (1, {LAST: 2}, "needs at least 2 pipeline ranks; given --decoder-last-pipeline-num-layers 2 with 1 rank"),
    # the model and tensor parallelism
    (4, {TP: 4, "group_query_attention": True, "num_query_groups": 2}, r"num_query_groups \(2\) must .* \(4\)"),
    (1, {HEADS: 8, "group_query_attention": True, "num_query_groups": 3}, r"num_attention_heads \(8\) must .* \(3\)"),
    (2, {TP: 2, HEADS: 3, "hidden_size": 48}, r"num_attention_heads \(3\) must be divisible by .* \(2\)"),
    (2, {TP: 2, "ffn_hidden_size": 65}, r"ffn_hidden_size \(65\) must be divisible by .* \(2\): use 64 or 66"),
    (1, {"num_attention_heads": 5}, r"hidden_size \(32\) must be divisible by num_attention_heads \(5\)"),
    (1, {"kv_channels": 7, "position_embedding_type": "rope"}, r"even number of channels .* 7 .* gives 7"),
    (2, {TP: 2, "sequence_parallel": True, "seq_length": 31}, r"seq_length \(31\) must be divisible by .* \(2\)"),
    (1, {"seq_length": 64}, r"seq_length \(64\) must be at most max_position_embeddings \(32\)"),
    # batches and length
    (3, {"global_batch_size": 10}, r"\(10\) .* micro_batch_size \(2\) x data-parallel size \(3\) = 6: use 6 or 12"),
    (1, {"global_batch_size": 4, "micro_batch_size": 8}, r"global_batch_size \(4\) .* micro_batch_size \(8\) .* = 8"),
    (1, {"micro_batch_size": 0}, "micro_batch_size must be at least 1; given 0"),
    (1, {**SAMPLES, "rampup_batch_size": [3, 2, 40]}, r"whole increments.* 5 .* 2;"),
    (1, {**SAMPLES, "rampup_batch_size": [2, 3, 40]}, r"micro_batch_size \(2\).* = 2; the batch of 5 "),
    (1, {"train_iters": None}, "length of training must be given: add --train-iters"),
    (1, {"train_samples": 80}, "given train_iters 10 and train_samples 80: keep one"),
    (1, {**SAMPLES, "train_samples": 7}, r"train_samples \(7\) must be at least the first global batch \(8\)"),
    (1, {"lr": None}, "lr must be given"),
    (1, {"save": "x", "save_interval": 0}, "save_interval must be at least 1; given 0"),
    (1, {"lr_warmup_iters": 10}, r"lr_warmup_iters \(10\) must be less than .* \(10\)"),
    # numbers by themselves
    (1, {"seed": -1}, r"seed must be from 0 to 2\^63 - 1; given -1"),
    (1, {"seed": 2**63}, r"seed must be from 0 to 2\^63 - 1; given 9223372036854775808"),
    # flags that contradict each other, are unknown, or are those of something else
    (1, {"fp16": True, "bf16": True}, "at most one precision may be chosen; given bf16 and fp16"),
    (1, {"distributed_backend": "nccl"}, "nccl needs a CUDA device and none was found"),
    (1, {"hiden_size": 32}, "--hiden-size is not known: perhaps you meant --hidden-size"),
    (1, {"model": "gtp"}, "--model must name a file of megalite/models/; given 'gtp'; choose from: .*gpt"),
    (1, {"optimizer": "adm"}, "--optimizer must name a file of megalite/optim/rules/; given 'adm'"),
    (1, {"pipeline_schedule": "2f2b"}, "--pipeline-schedule must name a file"),
    (2, {"context_parallel_size": 2}, "context_parallel_size must be 1"),
    # data
    (1, {"data_path": None}, "training needs a corpus"),
    (1, {"split": "90,abc5,5"}, "--split must be one to three non-negative numbers.* given '90,abc5,5'"),
    (1, {"split": "0,0,0"}, "--split must be .* with a positive sum"),
    (1, {"data_path": ["0.5", "a", "x", "b"]}, "'x' is no such weight"),
]


@pytest.mark.parametrize("num_processes, changes, told", CASES, ids=lambda value: str(value)[:60])
def test_it_is_refused_with_the_numbers(corpus, failing, num_processes, changes, told):
    error = failing(MegaliteError, flags(**{"data_path": corpus, **changes}), num_processes)
    assert re.search(told, error, re.DOTALL), error
    assert not error.startswith("2 problems"), f"one cause, one problem: {error}"


def test_all_problems_are_told_together(failing):
    error = failing(
        ConfigError,
        flags(data_path=["0.5", "a", "x", "b"], split="-1,1,0", seq_length=64, optimizer="adm", global_batch_size=7),
    )
    assert error.startswith("5 problems:\n  - ")
    for name in ("'x' is no such weight", "--split", "seq_length (64)", "--optimizer", "global_batch_size (7)"):
        assert error.count(name) == 1


def test_a_file_gives_settings_and_its_errors_are_told_with_the_rest(corpus, tmp_path, failing):
    file = tmp_path / "run.yaml"
    file.write_text("model:\n  num_layer: 2\ntraining:\n  train_iters: 3\n")
    error = failing(ConfigError, [*flags(data_path=corpus, train_iters=None, seq_length=64), "--config", str(file)])
    assert f"num_layer in {file} is not known: perhaps you meant num_layers" in error
    file.write_text("training:\n  train_iters: 3\n  seed: 7\noptimizer:\n  lr: 1.0\n")
    metrics = tmp_path / "metrics.jsonl"
    trained(1, [*flags(data_path=corpus, train_iters=None, metrics_file=metrics), "--config", str(file)])
    assert {step: values[2] for step, values in curve(metrics).items()} == {1: TINY["lr"], 2: TINY["lr"], 3: TINY["lr"]}


def test_a_missing_tokenizer_is_named(corpus, tmp_path, failing):
    huggingface = {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "/no/such/place", "vocab_size": None}
    assert "/no/such/place" in failing(TokenizerError, flags(data_path=corpus, **huggingface))
    for suffix in (".bin", ".idx"):
        (tmp_path / f"bare{suffix}").symlink_to(corpus + suffix)
    unknown = flags(data_path=tmp_path / "bare", tokenizer_type=None, vocab_size=None)
    assert "the vocabulary must be known" in failing(ConfigError, unknown)


@pytest.mark.parametrize("end, told", [("_document", ""), (".bin", ""), ("", r"There is \S+corpus_text_document: ")])
def test_a_wrong_name_of_a_corpus_is_told_as_one(corpus, failing, end, told):
    wrong = corpus.removesuffix("_text_document") + end
    for tokenizer in ({"tokenizer_type": None, "vocab_size": None}, {}):
        error = failing(DataError, flags(data_path=wrong, **tokenizer))
        assert re.search(rf"{re.escape(wrong)}\.idx must exist for --data-path .*{told}", error), error


def test_sequence_parallelism_of_one_rank_is_a_notice(corpus):
    argv = flags(data_path=corpus, train_iters=1, sequence_parallel=True)
    done = printed(1, argv)
    assert done.status == 0 and "sequence_parallel has no effect with tensor_model_parallel_size 1" in done.out
    assert f"global_batch_size {TINY['global_batch_size']}" in done.out, "the resolved configuration is shown"


def test_one_process_ends_with_status_2(corpus):
    done = run(python(flags(data_path=corpus, seq_length=64, global_batch_size=7)))
    assert (done.status, done.out) == (2, "")
    assert done.err.splitlines()[0] == "ConfigError: 2 problems:" and len(done.err.splitlines()) == 3
    assert done.seconds < 60


def test_two_processes_say_it_once_and_torchrun_repeats_it_last(corpus):
    done = run(torchrun(2, flags(data_path=corpus, seq_length=64)))
    told = "seq_length (64) must be at most max_position_embeddings (32)"
    assert done.status != 0 and done.out == ""
    assert done.err.count(told) == 2 and f"[rank 0] ConfigError: {told}" in done.err and "[rank 1]" not in done.err
    root_cause = done.err.partition("Root Cause")[2]
    assert told in root_cause and re.search(r"exitcode *: 2 ", root_cause)
    assert done.seconds < 60


def test_help_is_shown_once(monkeypatch, capsys):
    """By the first of two processes."""
    for rank, shown in ((0, 1), (1, 0)):
        monkeypatch.setenv("RANK", str(rank))
        with pytest.raises(SystemExit) as caught:
            pretrain(["--help"])
        assert not caught.value.code
        assert capsys.readouterr().out.count("--tensor-model-parallel-size") == shown
