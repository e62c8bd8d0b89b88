"""Megatron-LM's torch_dist format: what torch.distributed.checkpoint writes is read, whatever its chunks; refusals."""

import argparse

import pytest
import torch

from megalite.convert.command import main
from megalite.convert.formats import open_checkpoint
from megalite.convert.options import ReadOptions
from megalite.convert.verify import logits
from megalite.errors import CheckpointError, ConfigError
from tests.convert import chunked, models
from tests.convert.chunked import SLOTS, common_content, model_tensors, with_state, write_chunked


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The model with its optimizer, as Megatron-LM would have written it on two tensor-parallel ranks."""
    tensors = with_state(model_tensors())
    return write_chunked(tmp_path_factory.mktemp("torch_dist"), tensors, common_content())


@pytest.fixture
def hugging_face(tmp_path):
    config, _ = models.CASES["llama"]
    return open_checkpoint(models.write_model(tmp_path / "hf", config, chunked.hugging_face_weights()))


def test_chunks_of_ranks_are_the_model_they_were_cut_from(written, hugging_face):
    found = open_checkpoint(written)
    parameters = [name for name in found.names() if not name.startswith("optim.")]
    assert tuple(parameters) == hugging_face.names()
    for name in parameters:
        value = hugging_face.read(name)
        assert torch.equal(found.read(name), value) and found.dtype(name) == "bfloat16", name
        for slot, factor in SLOTS.items():
            ours = f"optim.{'param' if slot == 'fp32_param' else slot}.{name}"
            assert torch.equal(found.read(ours), value.float() * factor) and found.dtype(ours) == "float32", ours
    assert len(found.names()) == 4 * len(parameters)
    ids = torch.tensor([[4, 88, 100, 0, 2]])
    assert torch.equal(logits(found, ids), logits(hugging_face, ids))
    counted = {"iteration": 3, "consumed_samples": 12, "updated_samples": 12, "num_updates": 5, "loss_scaler": {}}
    assert found.meta == counted and found.config.training.bf16


def test_it_becomes_a_checkpoint_of_ours(written, tmp_path):
    command = ["--load-dir", str(written), "--save-dir", str(tmp_path / "ours"), "--save-format", "megalite"]
    assert main([*command, "--verify"]) == 0
    first, second = open_checkpoint(written), open_checkpoint(tmp_path / "ours")
    assert first.names() == second.names()
    assert all(torch.equal(first.read(name), second.read(name)) for name in first.names())


def test_layers_may_be_stored_one_by_one_and_arguments_as_an_object(tmp_path, hugging_face):
    # Under the names of Megatron Core's own layers, which keep norms apart.
    tensors = {_apart(name): tensor for name, tensor in model_tensors(stacked=False).items()}
    tensors = {**tensors, "common_state/shard_0_1": [common_content(optimizer=None)]}
    source = write_chunked(tmp_path / "numbered", tensors, ranks=1)
    found = open_checkpoint(source / "iter_0000003")
    assert found.names() == hugging_face.names()
    assert all(torch.equal(found.read(name), hugging_face.read(name)) for name in found.names())


def _apart(name):
    name = name.replace("self_attention.linear_qkv.layer_norm_", "input_layernorm.")
    return name.replace("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.")


def changed(**values):
    """What is common, with other arguments."""
    return {"args": argparse.Namespace(**{**vars(chunked.ARGUMENTS), **values})}


def test_the_state_of_the_optimizer_may_be_left(written):
    found = open_checkpoint(written, options=ReadOptions(with_optimizer=False))
    assert not any(name.startswith("optim.") for name in found.names()) and found.meta["num_updates"] == 0


def test_main_copies_of_float32_parameters_are_no_state_of_their_own(tmp_path):
    tensors = {name: tensor.float() for name, tensor in model_tensors().items()}
    source = open_checkpoint(write_chunked(tmp_path, with_state(tensors), common_content(), ranks=1))
    assert {name.split(".")[1] for name in source.names() if name.startswith("optim.")} == {"exp_avg", "exp_avg_sq"}


def test_only_the_chunks_that_are_wanted_are_read(tmp_path):
    tensors = model_tensors()
    source = write_chunked(tmp_path, tensors, common_content(), ranks=1)
    found = open_checkpoint(source)
    assert len(list((source / "iter_0000003").glob("*.distcp"))) == 1
    span = found._chunks.tensors["output_layer.weight"].chunks[0][1]
    with open(source / "iter_0000003" / span.file, "r+b") as file:
        file.seek(span.start)
        file.write(b"\0" * span.length)
    assert torch.equal(found.read("final_norm.weight"), tensors["decoder.final_layernorm.weight"])
    with pytest.raises(CheckpointError, match=r"distcp must hold what torch.save writes"):
        found.read("head.weight")


def test_state_in_buckets_is_refused_and_can_be_left(tmp_path):
    bucket = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.param"
    source = write_chunked(tmp_path / "in", {**model_tensors(), bucket: torch.zeros(9)}, common_content(), ranks=1)
    with pytest.raises(CheckpointError, match="stored by parameter.*there is optimizer.distributed.*--drop-optimizer"):
        open_checkpoint(source)
    out = tmp_path / "out"
    command = ["--load-dir", str(source), "--save-dir", str(out), "--save-format", "huggingface", "--drop-optimizer"]
    assert main(command) == 0
    models.assert_equal(models.read_tensors(out), chunked.hugging_face_weights())


class Unknown:
    """A class that no checkpoint has any business with."""


@pytest.mark.parametrize("common, message", [
    ({"args": Unknown()}, "is not unpickled: .*Unknown"),
    ({"iteration": 3}, "must hold a dict with args, a Namespace"),
    (changed(num_experts=4), "no model with num_experts .4."),
    (changed(num_layers=3), "args.num_layers .3. must be the number of layers in the files .4."),
    (changed(num_layers=5), "args.num_layers .5. must be the number of layers in the files .4."),
    (changed(ffn_hidden_size=48), "is .80, 24., not .96, 24."),
])  # fmt: skip
def test_what_is_not_known_is_refused(tmp_path, common, message):
    source = write_chunked(tmp_path, model_tensors(), common, ranks=1)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(source)


def test_directories_that_are_not_whole_or_not_megatrons(tmp_path):
    source = write_chunked(tmp_path, model_tensors(), ranks=1)
    with pytest.raises(CheckpointError, match="must hold common.pt or an object common_state"):
        open_checkpoint(source)
    with pytest.raises(CheckpointError, match="iter_0000004 must hold .metadata"):
        open_checkpoint(source, options=ReadOptions(step=4))
    torch.save(common_content(), source / "iter_0000003" / "common.pt")
    with pytest.raises(CheckpointError, match="does not hold the model of its args:\n  missing: "):
        lacking = {name: tensor for name, tensor in model_tensors().items() if name != "output_layer.weight"}
        open_checkpoint(write_chunked(tmp_path / "lacking", lacking, common_content(), ranks=1))


def test_it_is_read_only(written, tmp_path):
    with pytest.raises(ConfigError, match="must be a format that can be written; torch_dist is only read"):
        main(["--load-dir", str(written), "--save-dir", str(tmp_path / "out"), "--save-format", "torch_dist"])
