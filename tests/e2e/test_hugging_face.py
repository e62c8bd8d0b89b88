"""Training that begins with a Hugging Face directory, and one beside each checkpoint."""

import json

import pytest

from megalite.errors import CheckpointError, ConfigError
from megalite.train.configure import configure
from tests.convert.models import assert_equal, read_tensors, write_case
from tests.e2e.launch import flags, trained

NO_MODEL = dict.fromkeys(
    (
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "max_position_embeddings",
        "vocab_size",
        "attention_dropout",
        "hidden_dropout",
    )
)
STANDING_STILL = {"lr": 1e-30, "weight_decay": 0}
"""Steps too small to change a bit."""


def options(corpus, **fields):
    return flags(**{**NO_MODEL, "seq_length": 16, "data_path": corpus, "save_interval": 1, "train_iters": 1, **fields})


@pytest.mark.parametrize("case, layout", [
    ("gpt2", {"tensor_model_parallel_size": 2, "use_distributed_optimizer": True, "async_save": True}),
    ("llama", {"pipeline_model_parallel_size": 2}),
])  # fmt: skip
def test_weights_go_through_training_and_out_again(corpus, tmp_path, case, layout):
    source = write_case(tmp_path / "in", case)
    (source / "tokenizer.json").write_text('{"a": 1}')
    run = tmp_path / "run"
    trained(2, options(corpus, load=source, save=run, save_hf=True, **STANDING_STILL, **layout))
    out = run / "iter_0000001" / "huggingface"
    assert_equal(read_tensors(source), read_tensors(out))
    assert (out / "tokenizer.json").read_text() == '{"a": 1}'
    kept = json.loads((source / "config.json").read_text())
    written = json.loads((out / "config.json").read_text())
    assert {name: written[name] for name in kept} == kept
    # Resumed at another layout, it still knows its tokenizer.
    trained(
        1, options(corpus, load=run, save=run, save_hf=True, train_iters=2, use_checkpoint_args=True, **STANDING_STILL)
    )
    later = run / "iter_0000002" / "huggingface"
    assert_equal(read_tensors(source), read_tensors(later))
    assert (later / "tokenizer.json").read_text() == '{"a": 1}'


def test_training_moves_the_weights(corpus, tmp_path):
    source, run = write_case(tmp_path / "in", "opt"), tmp_path / "run"
    trained(1, options(corpus, load=source, save=run, save_hf=True, bf16=True, lr=1e-2))
    before, after = read_tensors(source), read_tensors(run / "iter_0000001" / "huggingface")
    name = "model.decoder.layers.0.fc1.weight"
    assert before.keys() == after.keys() and str(after[name].dtype) == "torch.bfloat16"
    moved = (after[name].float() - before[name]).abs().mean()
    assert 0.002 < moved < 0.02  # Adam's first step is the learning rate in every element, here without warm-up.


def test_the_model_comes_from_the_directory_and_flags_win(corpus, tmp_path, caplog):
    source = write_case(tmp_path / "in", "llama")
    with caplog.at_level("INFO", "megalite"):
        model = configure(options(corpus, load=source, attention_dropout=0.2, save=tmp_path / "run")).model
    assert (model.num_layers, model.query_groups, model.rotary_base, model.seq_length) == (4, 2, 50000.0, 16)
    assert (model.attention_dropout, model.hidden_dropout, model.vocab_size) == (0.2, 0.0, 100)
    assert "attention_dropout: 0.0 -> 0.2" in caplog.text
    own = configure(options(corpus, load=source, tokenizer_type=None, save=tmp_path / "run")).model
    assert own.vocab_size == 101


def test_another_model_than_the_directorys_is_refused_with_its_configuration(corpus, tmp_path, failing):
    source = write_case(tmp_path / "in", "llama")
    argv = options(corpus, load=source, num_layers=5, save=tmp_path / "run", **STANDING_STILL)
    error = failing(CheckpointError, argv)
    assert "missing (6):\n    layers.4.attention.out.weight" in error
    assert error.endswith(f"Use the model that wrote it: its configuration is {source}/config.json.")


def test_what_such_a_directory_cannot_give_is_refused(corpus, tmp_path):
    source = write_case(tmp_path / "in", "llama")
    with pytest.raises(CheckpointError, match="has no steps: drop --ckpt-step 3"):
        configure(options(corpus, load=source, ckpt_step=3, save=tmp_path / "run"))
    with pytest.raises(ConfigError, match="needs a checkpoint with curves; .*in has none: give --lr"):
        argv = options(corpus, load=source, save=tmp_path / "run")
        configure([*argv, "--use-checkpoint-opt_param-scheduler"])
    with pytest.raises(ConfigError, match="--seq-length must be given"):
        configure(options(corpus, load=source, seq_length=None, save=tmp_path / "run"))


def test_a_model_that_no_family_holds_is_refused_before_training(corpus, tmp_path, failing):
    argv = flags(data_path=corpus, save=tmp_path / "run", save_interval=1, save_hf=True, squared_relu=True)
    error = failing(ConfigError, argv)
    assert (
        "no Hugging Face family that megalite knows holds this model" in error
        and "gpt2: activation is squared_relu" in error
    )
    assert not (tmp_path / "run").exists()
