"""Megatron-LM's torch format: files made by hand are read, all layouts come back to the bit, and refusals by name."""

import argparse
import json
from pathlib import Path

import numpy
import pytest
import torch

from megalite.convert.command import main
from megalite.convert.formats import open_checkpoint
from megalite.convert.megatron.arguments import config_from
from megalite.convert.options import ReadOptions
from megalite.convert.verify import logits
from megalite.errors import CheckpointError, ConfigError
from tests.convert import models
from tests.convert.conftest import GPT2_MODEL, LLAMA_MODEL, META, save_run
from tests.convert.models import FFN, GROUPS, HEADS, HIDDEN, LAYERS, VOCABULARY, WIDTH, read_tensors, write_case

PADDED = 256  # 101 tokens, rounded up to a multiple of 128 x 2.


def convert(source, target, save_format, *more: object) -> None:
    arguments = ["--load-dir", source, "--save-dir", target, "--save-format", save_format, *more]
    assert main([str(argument) for argument in arguments]) == 0


def layout(tp: int = 1, pp: int = 1, virtual: int = 1, impl: str = "transformer_engine") -> list[object]:
    return [
        "--target-tensor-parallel-size", tp, "--target-pipeline-parallel-size", pp, "--target-virtual-stages", virtual,
        "--target-transformer-impl", impl,
    ]  # fmt: skip


def assert_same(first: Path, second: Path) -> None:
    """Two checkpoints hold the same tensors, bit for bit."""
    one, other = open_checkpoint(first), open_checkpoint(second)
    assert one.names() == other.names()
    for name in one.names():
        assert one.dtype(name) == other.dtype(name) and torch.equal(one.read(name), other.read(name)), name


LAYOUTS = [layout(), layout(2, 2), layout(2, 2, 2, "local"), layout(1, 4), layout(1, 2, 2)]


@pytest.mark.parametrize("shape", LAYOUTS, ids=["1 1", "2 2", "2 2 2", "1 4", "1 2 2"])
@pytest.mark.parametrize("model, dtype", [(GPT2_MODEL, "float32"), (LLAMA_MODEL, "bfloat16")], ids=["gpt2", "llama"])
def test_every_layout_comes_back_with_its_optimizer(tmp_path, model, dtype, shape):
    run = save_run(tmp_path / "run", model, dtype)
    convert(run, tmp_path / "megatron", "megatron", *shape)
    assert_same(run, tmp_path / "megatron")
    convert(tmp_path / "megatron", tmp_path / "back", "megalite")
    assert_same(run, tmp_path / "back")
    back = open_checkpoint(tmp_path / "back")
    assert back.meta == {**META, "data_fingerprint": None}
    assert back.config.model.vocab_size == 101 and back.config.training.bf16 == (dtype == "bfloat16")


def test_one_layout_becomes_another(tmp_path, trained):
    convert(trained, tmp_path / "a", "megatron", *layout(2, 2, 2))
    convert(tmp_path / "a", tmp_path / "b", "megatron", *layout(1, 1, 1, "local"))  # Merged to one file.
    convert(tmp_path / "b", tmp_path / "c", "megatron", *layout(2, 2, 2))  # Merged already, and cut again.
    assert len(list((tmp_path / "b").rglob("*.pt"))) == 1
    assert_same(trained, tmp_path / "b")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.pt"))
    assert len(files) == 4
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "c" / file).read_bytes(), file


def test_from_hugging_face_and_back(tmp_path):
    source = write_case(tmp_path / "in", "llama", torch.bfloat16)
    convert(source, tmp_path / "megatron", "megatron", *layout(2, 2), "--verify")
    assert (tmp_path / "megatron" / "latest_checkpointed_iteration.txt").read_text() == "release\n"
    convert(tmp_path / "megatron", tmp_path / "out", "huggingface")
    models.assert_equal(read_tensors(source), read_tensors(tmp_path / "out"))


def hand_made(directory: Path, arguments: dict | None = None, version: float = 3.0) -> Path:
    """A Llama cut by hand for two tensor-parallel ranks, from the matrices of a Hugging Face directory."""
    weights = models.random_tensors(models.llama_shapes())
    namespace = argparse.Namespace(
        num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=HEADS,
        group_query_attention=True, num_query_groups=GROUPS, kv_channels=WIDTH, seq_length=16,
        max_position_embeddings=16, swiglu=True, position_embedding_type="rope", rotary_base=50000,
        normalization="RMSNorm", norm_epsilon=1e-5, add_bias_linear=False, untie_embeddings_and_output_weights=True,
        padded_vocab_size=PADDED, vocab_size=None, params_dtype=torch.float32,
        consumed_train_samples=12, optimizer="adam", lr=0.001, data_path=["corpus"],
        attention_dropout=0.0, hidden_dropout=0.0,
    )  # fmt: skip
    vars(namespace).update(arguments or {})
    for rank in range(2):
        content = {"args": namespace, "checkpoint_version": version, "iteration": 3, "model": _cut(weights, rank)}
        content["rng_state"] = [{"np_rng_state": numpy.random.RandomState(1).get_state()}]
        path = directory / "iter_0000003" / f"mp_rank_{rank:02d}" / "model_optim_rng.pt"
        path.parent.mkdir(parents=True)
        torch.save(content, path)
    (directory / "latest_checkpointed_iteration.txt").write_text("3")
    return directory


def _cut(weights: dict[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """One rank's part of each matrix, in the order and the names of Megatron Core with local layers."""

    def padded(matrix):
        return torch.cat([matrix, torch.full((PADDED - VOCABULARY, HIDDEN), 9.0)])[
            rank * 128 : (rank + 1) * 128
        ].clone()

    mine: dict[str, torch.Tensor] = {"embedding.word_embeddings.weight": padded(weights["model.embed_tokens.weight"])}
    for index in range(LAYERS):
        ours, theirs = f"decoder.layers.{index}", f"model.layers.{index}"
        queries = [
            weights[f"{theirs}.self_attn.q_proj.weight"][h * WIDTH : (h + 1) * WIDTH] for h in (2 * rank, 2 * rank + 1)
        ]
        shared = [weights[f"{theirs}.self_attn.{x}_proj.weight"][rank * WIDTH : (rank + 1) * WIDTH] for x in "kv"]
        halves = [
            weights[f"{theirs}.mlp.{x}_proj.weight"][rank * FFN // 2 : (rank + 1) * FFN // 2] for x in ("gate", "up")
        ]
        columns = slice(rank * HIDDEN // 2, (rank + 1) * HIDDEN // 2)
        mine[f"{ours}.input_layernorm.weight"] = weights[f"{theirs}.input_layernorm.weight"]
        mine[f"{ours}.self_attention.linear_proj.weight"] = weights[f"{theirs}.self_attn.o_proj.weight"][
            :, columns
        ].clone()
        mine[f"{ours}.self_attention.linear_qkv.weight"] = torch.cat([*queries, *shared])
        mine[f"{ours}.self_attention.linear_qkv._extra_state"] = None
        mine[f"{ours}.pre_mlp_layernorm.weight"] = weights[f"{theirs}.post_attention_layernorm.weight"]
        mine[f"{ours}.mlp.linear_fc1.weight"] = torch.cat(halves)
        down = weights[f"{theirs}.mlp.down_proj.weight"]
        mine[f"{ours}.mlp.linear_fc2.weight"] = down[:, rank * FFN // 2 : (rank + 1) * FFN // 2].clone()
    mine["decoder.final_layernorm.weight"] = weights["model.norm.weight"]
    mine["output_layer.weight"] = padded(weights["lm_head.weight"])
    return mine


def test_files_cut_by_hand_are_the_model_they_were_cut_from(tmp_path):
    whole = open_checkpoint(write_case(tmp_path / "hf", "llama"))
    cut = open_checkpoint(hand_made(tmp_path / "megatron"), options=ReadOptions(vocab_size=VOCABULARY))
    assert whole.names() == cut.names()
    for name in whole.names():
        assert torch.equal(whole.read(name), cut.read(name)), name
    ids = torch.tensor([[4, 88, 100, 0, 2]])
    assert torch.equal(logits(whole, ids), logits(cut, ids))
    assert cut.meta == {
        "iteration": 3,
        "consumed_samples": 12,
        "updated_samples": 12,
        "num_updates": 0,
        "loss_scaler": {},
    }
    assert cut.config.optimizer.lr == 0.001 and cut.config.data.data_path == ()
    assert cut.config.model == whole.config.model


def test_without_the_true_size_the_padding_counts(tmp_path, caplog):
    source = hand_made(tmp_path / "megatron")
    assert open_checkpoint(source).shape("embedding.word.weight") == (PADDED, HIDDEN)
    assert "does not tell the size of the vocabulary without padding: taking 256" in caplog.text
    with pytest.raises(ConfigError, match="--true-vocab-size must be from 1 to the padded size .256.; given 300"):
        open_checkpoint(source, options=ReadOptions(vocab_size=300))


@pytest.mark.parametrize("arguments, warned", [
    ({"swiglu": False, "add_bias_linear": False}, True),
    ({"swiglu": False, "bias_gelu_fusion": False}, True),
    ({"swiglu": False, "bias_gelu_fusion": True, "add_bias_linear": True}, False),
    ({"bias_gelu_fusion": False}, False),
])  # fmt: skip
def test_the_exact_gelu_is_mentioned(tmp_path, caplog, arguments, warned):
    given = torch.load(
        hand_made(tmp_path, arguments) / "iter_0000003/mp_rank_00/model_optim_rng.pt", weights_only=False
    )["args"]
    config_from(given, VOCABULARY, "there")
    assert ("there was trained with the exact GELU" in caplog.text) == warned


@pytest.mark.parametrize("arguments, message", [
    ({"num_experts": 8}, "megalite has no model with num_experts .8."),
    ({"apply_residual_connection_post_layernorm": True}, "with apply_residual_connection_post_layernorm .True."),
    ({"no_rope_freq": 4, "qk_l2_norm": True}, r"no model with qk_l2_norm \(True\), no_rope_freq \(4\)"),
    ({"position_embedding_type": "yarn"}, "position_embedding_type .yarn, not one of"),
    ({"num_layers": 5}, "args.num_layers .5. must be the number of layers in the files .4."),
    ({"num_layers": None}, "args must tell what the model is; missing: num_layers"),
    ({"ffn_hidden_size": 48}, "mlp.linear_fc1.weight is .40, 24., not .48, 24."),
    ({"qk_layernorm": True}, "missing: decoder.layers.0.self_attention.q_layernorm.weight of rank 0, 0 and"),
])  # fmt: skip
def test_models_that_are_not_ours_are_refused(tmp_path, arguments, message):
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(hand_made(tmp_path / "megatron", arguments))


def test_other_versions_and_damage_are_named(tmp_path):
    with pytest.raises(CheckpointError, match="must have checkpoint_version 3.0; it has 1.0"):
        open_checkpoint(hand_made(tmp_path / "old", version=1.0))
    source = hand_made(tmp_path / "megatron")
    (source / "latest_checkpointed_iteration.txt").write_text("7")
    with pytest.raises(CheckpointError, match="iter_0000007 must hold mp_rank"):
        open_checkpoint(source)
    (source / "latest_checkpointed_iteration.txt").write_text("three")
    with pytest.raises(CheckpointError, match="must hold an iteration, or release; it holds 'three'"):
        open_checkpoint(source)
    assert open_checkpoint(source, options=ReadOptions(step=3)).meta["iteration"] == 3
    assert open_checkpoint(source / "iter_0000003").meta["iteration"] == 3
    path = source / "iter_0000003" / "mp_rank_01" / "model_optim_rng.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="mp_rank_01/model_optim_rng.pt must hold what torch.save writes"):
        open_checkpoint(source / "iter_0000003")
    path.unlink()
    with pytest.raises(CheckpointError, match="2 x 1 ranks must have all their files; missing: .*mp_rank_01"):
        open_checkpoint(source / "iter_0000003")


class Unknown:
    """A class that no checkpoint has any business with."""


def _rewrite(source: Path, **entries: object) -> Path:
    path = source / "iter_0000003" / "mp_rank_00" / "model_optim_rng.pt"
    content = {"args": argparse.Namespace(), "checkpoint_version": 3.0, "model": {}, **entries}
    torch.save(content, path)
    return source


def test_unknown_types_are_not_unpickled(tmp_path):
    source = _rewrite(hand_made(tmp_path / "megatron"), surprise=Unknown())
    with pytest.raises(CheckpointError, match="is not unpickled: .*test_megatron.Unknown"):
        open_checkpoint(source)


def test_foreign_pickles_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="must hold a dict with args, a Namespace"):
        open_checkpoint(_rewrite(hand_made(tmp_path / "a"), args="none"))
    legacy = _rewrite(
        hand_made(tmp_path / "b"), args=argparse.Namespace(**_namespace(tmp_path)), model={"language_model": {}}
    )
    with pytest.raises(CheckpointError, match="has the names of Megatron-LM's legacy models"):
        open_checkpoint(legacy)


def _namespace(tmp_path: Path) -> dict:
    source = hand_made(tmp_path / "namespace")
    content = torch.load(source / "iter_0000003" / "mp_rank_01" / "model_optim_rng.pt", weights_only=False)
    return vars(content["args"])


def test_expert_parallel_ranks_are_refused(tmp_path):
    source = hand_made(tmp_path / "megatron")
    (source / "iter_0000003" / "mp_rank_00_000_001").mkdir()
    with pytest.raises(CheckpointError, match="written by expert-parallel ranks .mp_rank_00_000_001."):
        open_checkpoint(source)


@pytest.mark.parametrize("shape, message", [
    (layout(4), "num_query_groups .2. must be divisible by 4"),
    (layout(1, 3), "num_layers .4. must be divisible by 3"),
])  # fmt: skip
def test_layouts_that_do_not_divide_the_model_are_refused(tmp_path, shape, message):
    with pytest.raises(ConfigError, match=message):
        convert(write_case(tmp_path / "in", "llama"), tmp_path / "out", "megatron", *shape)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".tmp*"))


def test_relu_has_no_place_in_megatron(tmp_path):
    with pytest.raises(ConfigError, match="no flag for the activation relu"):
        convert(write_case(tmp_path / "in", "opt"), tmp_path / "out", "megatron")


def test_state_of_other_rules_has_no_place_in_megatron(tmp_path):
    run = save_run(tmp_path / "run", GPT2_MODEL, slots=("momentum",), rule="lion")
    sgd = save_run(tmp_path / "sgd", GPT2_MODEL, slots=("momentum",), rule="sgd")
    with pytest.raises(ConfigError, match="of adam and sgd; this checkpoint has that of lion .momentum.: add --drop"):
        convert(run, tmp_path / "out", "megatron")
    with pytest.raises(ConfigError, match="distributed optimizer of Megatron-LM has the optimizer state of adam; this"):
        convert(sgd, tmp_path / "out", "megatron", "--target-distributed-optimizer")
    convert(run, tmp_path / "out", "megatron", "--drop-optimizer")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_momentum_of_sgd_comes_back(tmp_path, dtype):
    run = save_run(tmp_path / "run", GPT2_MODEL, dtype, slots=("momentum",), rule="sgd")
    convert(run, tmp_path / "megatron", "megatron", *layout(2, 2))
    path = tmp_path / "megatron" / "iter_0000005" / "mp_rank_00_001" / "model_optim_rng.pt"
    optimizer = torch.load(path, weights_only=False)["optimizer"]
    inner = optimizer.get("optimizer", optimizer)
    assert inner["state"][0].keys() == {"momentum_buffer"} and inner["param_groups"][0]["momentum"] == 0.9
    assert_same(run, tmp_path / "megatron")
    convert(tmp_path / "megatron", tmp_path / "back", "megalite")
    assert open_checkpoint(tmp_path / "back").config.optimizer.optimizer == "sgd"


@pytest.mark.parametrize("pp, stages, layers", [
    (2, "Et|ttt L", (1, 3)),
    (4, "E|t*3||tL", (0, 3, 0, 1)),
    (2, "Et|t*2|t|L", (1, 2, 1, 0)),
])  # fmt: skip
@pytest.mark.parametrize("distributed", [(), ("--target-distributed-optimizer",)], ids=["plain", "distributed"])
def test_stages_may_be_uneven(tmp_path, pp, stages, layers, distributed):
    run = save_run(tmp_path / "run", GPT2_MODEL, "bfloat16")
    convert(run, tmp_path / "megatron", "megatron", *layout(2, pp), "--target-pipeline-layout", stages, *distributed)
    assert_same(run, tmp_path / "megatron")
    for stage, count in enumerate(layers):
        path = tmp_path / "megatron" / "iter_0000005" / f"mp_rank_01_{stage % pp:03d}" / "model_optim_rng.pt"
        content = torch.load(path, weights_only=False)
        names = content["model" if len(layers) == pp else f"model{stage // pp}"]
        assert len({name.split(".")[2] for name in names if name.startswith("decoder.layers.")}) == count
        assert content["args"].pipeline_model_parallel_layout == stages


def test_a_layout_that_is_none_is_shown(tmp_path, trained):
    with pytest.raises(ConfigError, match="must hold all 4 layers .t.; it holds 3"):
        convert(trained, tmp_path / "out", "megatron", *layout(1, 2), "--target-pipeline-layout", "Ett|tL")


def test_the_loss_scaler_goes_along(tmp_path, trained):
    meta = trained / "iter_0000005" / "meta.json"
    content = {**json.loads(meta.read_text()), "loss_scaler": {"scale": 1024.0, "finite_steps": 7, "tolerance": 2}}
    meta.write_text(json.dumps(content))
    index = trained / "iter_0000005" / "index.json"
    entries = json.loads(index.read_text())
    entries["files"]["meta.json"] = {"bytes": meta.stat().st_size}
    index.write_text(json.dumps(entries))
    convert(trained, tmp_path / "megatron", "megatron")
    assert open_checkpoint(tmp_path / "megatron").meta["loss_scaler"] == content["loss_scaler"]


def test_the_state_is_where_megatron_looks_for_it(tmp_path):
    run = open_checkpoint(save_run(tmp_path / "run", GPT2_MODEL, "bfloat16"))
    convert(tmp_path / "run", tmp_path / "megatron", "megatron", *layout(2, 2, 1, "local"))
    path = tmp_path / "megatron" / "iter_0000005" / "mp_rank_01_001" / "model_optim_rng.pt"
    content = torch.load(path, weights_only=False)
    with_decay, without = content["optimizer"]["optimizer"]["param_groups"]
    assert (with_decay["wd_mult"], without["wd_mult"], with_decay["step"]) == (1.0, 0.0, 5)
    # The second stage: four matrices in each of two layers, and the tied output matrix; all else are biases and norms.
    names = [name for name, tensor in content["model"].items() if tensor.ndim == 2]
    assert with_decay["params"] == list(range(9)) and names[0] == "decoder.layers.0.self_attention.linear_proj.weight"
    assert without["params"] == list(range(9, 9 + len(content["model"]) - 9))
    moment = content["optimizer"]["optimizer"]["state"][0]["exp_avg"]
    assert torch.equal(moment, run.read("optim.exp_avg.layers.2.attention.out.weight")[:, 12:])
    main = content["optimizer"]["fp32_from_fp16_params"]
    assert torch.equal(main[0][-1], torch.zeros(128, 24))  # Of 256 rows of the vocabulary: nothing but padding.
    first_bias = [name for name, tensor in content["model"].items() if tensor.ndim == 1][0]
    assert first_bias == "decoder.layers.0.input_layernorm.weight"
    assert torch.equal(main[1][0], run.read("optim.param.layers.2.norm1.weight"))
