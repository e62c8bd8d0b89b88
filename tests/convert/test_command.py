"""The tool: what it detects, refuses and leaves behind; the check of logits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from megalite.convert.command import main, parse_size
from megalite.convert.formats import open_checkpoint
from megalite.convert.verify import sample_tokens, verify
from megalite.errors import CheckpointError, ConfigError
from megalite.train.state import Progress
from tests.convert import models
from tests.convert.models import read_tensors, write_case, write_model

TOOL = Path(__file__).parent.parent.parent / "tools" / "checkpoint_convert.py"


def arguments(source, target, *more: object) -> list[str]:
    return [str(argument) for argument in ("--load-dir", source, "--save-dir", target, *more)]


def test_the_program_converts_verifies_and_reports(tmp_path):
    source = write_case(tmp_path / "in", "llama")
    command = [sys.executable, TOOL, *arguments(source, tmp_path / "out", "--save-format", "megalite", "--verify")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "iteration 0, 27 parameters and 0 tensors of optimizer state" in done.stdout
    assert "written to" in done.stdout and "largest logit difference 0\n" in done.stdout
    assert " MB/s" in done.stderr and "Traceback" not in done.stderr


def test_a_refusal_is_one_sentence_and_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, TOOL, *arguments(tmp_path / "none", tmp_path / "out", "--save-format", "megalite")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"{tmp_path}/none must be a directory with a checkpoint; it does not exist." in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names, message", [
    ([], "it is empty"),
    (["notes.txt"], "it contains notes.txt"),
])  # fmt: skip
def test_foreign_directories_are_described(tmp_path, names, message):
    for name in names:
        (tmp_path / name).write_text("")
    formats = "huggingface, megalite, megatron, torch_dist"
    with pytest.raises(CheckpointError, match=f"one of the formats {formats}; {message}"):
        open_checkpoint(tmp_path)


def test_other_versions_of_ours_are_refused(tmp_path, trained):
    index = trained / "iter_0000005" / "index.json"
    index.write_text(index.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(CheckpointError, match="must have format version"):
        main(arguments(trained, tmp_path / "out", "--save-format", "huggingface"))


def test_what_is_there_is_not_written_over(tmp_path):
    source = write_case(tmp_path / "in", "llama")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(CheckpointError, match="out must not exist yet, or be an empty directory"):
        main(arguments(source, tmp_path / "out", "--save-format", "megalite"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["precious"]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    source = write_case(tmp_path / "in", "llama")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file/out cannot be written"):
        main(arguments(source, tmp_path / "file" / "out", "--save-format", "megalite"))


def test_an_unknown_format_lists_those_there_are(tmp_path):
    with pytest.raises(ConfigError, match="--save-format must name a file of .* choose from: huggingface, meg"):
        main(arguments(tmp_path, tmp_path / "out", "--save-format", "onnx"))


def test_the_step_and_the_dtype_are_taken(tmp_path, trained):
    with pytest.raises(CheckpointError, match="--ckpt-step 4 cannot be loaded"):
        main(arguments(trained, tmp_path / "out", "--save-format", "megalite", "--ckpt-step", 4))
    options = ("--ckpt-step", 5, "--dtype", "bfloat16", "--drop-optimizer", "--verify")
    main(arguments(trained, tmp_path / "out", "--save-format", "huggingface", *options))
    assert {tensor.dtype for tensor in read_tensors(tmp_path / "out").values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_what_is_written_has_the_counters_that_training_needs(tmp_path):
    main(arguments(write_case(tmp_path / "in", "gpt2"), tmp_path / "out", "--save-format", "megalite"))
    assert Progress.from_meta(open_checkpoint(tmp_path / "out").meta) == Progress()


@pytest.mark.parametrize("text, size", [("5GB", 5_000_000_000), ("1.5 MiB", 1_572_864), ("200kb", 200_000), ("77", 77)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "5 XB", "0MB", "-1GB"])
def test_sizes_that_are_none(text):
    with pytest.raises(ConfigError, match="--max-shard-size must be a size such as 500MB"):
        parse_size(text)


def test_the_check_of_logits_finds_a_wrong_weight(tmp_path):
    config, shapes = models.CASES["llama"]
    tensors = models.random_tensors(shapes)
    right = open_checkpoint(write_model(tmp_path / "right", config, tensors))
    name = "model.layers.1.self_attn.k_proj.weight"
    wrong = open_checkpoint(write_model(tmp_path / "wrong", config, {**tensors, name: -tensors[name]}))
    with pytest.raises(CheckpointError, match="must give the same logits, up to .*; they differ by"):
        verify(right, wrong)
    broken = open_checkpoint(write_model(tmp_path / "broken", config, {**tensors, name: tensors[name] * float("nan")}))
    with pytest.raises(CheckpointError, match="they differ by nan"):
        verify(right, broken)


def test_real_tokens_are_used_where_there_is_a_tokenizer(tmp_path):
    source = write_case(tmp_path / "in", "gpt2")
    tokens, what = sample_tokens(open_checkpoint(source))
    assert tokens[0, :3].tolist() == [7919 % 101, 2 * 7919 % 101, 3 * 7919 % 101] and "no tokenizer" in what
    words = {"[UNK]": 0, "Call": 1, "me": 2, "Ishmael": 3, "Some": 4}
    tokenizer = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
        "pre_tokenizer": {"type": "Whitespace"},
    }
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    tokens, what = sample_tokens(open_checkpoint(source))
    assert tokens[0, :5].tolist() == [1, 2, 3, 0, 4] and tokens.shape == (1, 16) and what == "English text"
