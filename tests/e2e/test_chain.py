"""The whole way of a model: from Hugging Face through Megatron-LM's files and steps of training, and out again."""

import json

import pytest
import torch

from megalite.convert.command import main
from megalite.convert.formats import open_checkpoint
from megalite.convert.verify import logits, transformers_logits
from tests.convert.models import CASES, VOCABULARY, assert_equal, read_tensors, write_case
from tests.e2e.launch import trained
from tests.e2e.test_hugging_face import STANDING_STILL, options

STEPS = 3
CHAINED = [case for case in CASES if case != "qwen2"]
TOKENS = torch.arange(1, 17)[None] * 7919 % VOCABULARY


def convert(source, target, save_format, *more):
    main(["--load-dir", str(source), "--save-dir", str(target), "--save-format", save_format, *more])
    return target


@pytest.fixture(scope="module", params=CHAINED)
def chain(request, corpus, tmp_path_factory):
    """The directory at the beginning, and those at the end of steps of no size and of steps that learn."""
    root = tmp_path_factory.mktemp("chain")
    first = write_case(root / "first", request.param)
    ours = convert(first, root / "ours", "megalite")
    if not request.param.startswith("opt"):  # Megatron-LM has no flag for its activation.
        cut = ("--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2")
        ours = convert(convert(ours, root / "cut", "megatron", *cut), root / "back", "megalite")
    ends = []
    for name, steps in (("still", STANDING_STILL), ("moved", {"lr": 1e-2})):
        run = {
            "load": ours,
            "finetune": True,
            "use_checkpoint_args": True,
            "save": root / name,
            "save_hf": True,
            **steps,
        }
        sizes = {"vocab_size": 100, "tensor_model_parallel_size": 2}
        trained(2, options(corpus, **{**run, **sizes, "train_iters": STEPS, "save_interval": STEPS}))
        ends.append(convert(root / name, root / f"{name} out", "huggingface", "--drop-optimizer"))
    return first, *ends


def test_what_steps_of_no_size_pass_through_comes_out_the_same(chain):
    first, still, moved = chain
    assert_equal(read_tensors(first), read_tensors(still))
    before, after = read_tensors(first), read_tensors(moved)
    assert before.keys() == after.keys() and not any(torch.equal(before[name], after[name]) for name in before)
    kept = json.loads((first / "config.json").read_text())
    written = json.loads((still / "config.json").read_text())
    assert {name: written[name] for name in kept} == kept


def test_transformers_computes_the_same_at_both_ends(chain):
    pytest.importorskip("transformers", reason="needs `pip install transformers`")
    for directory in chain:
        theirs = transformers_logits(directory, TOKENS)
        difference = (logits(open_checkpoint(directory), TOKENS) - theirs).abs().max().item()
        print(f"{directory.name}: largest logit {theirs.abs().max():.3g}, difference {difference:.2g}")
        assert difference < 1e-5
