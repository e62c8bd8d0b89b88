"""Hugging Face directories: round trips to the bit, the functions that the weights stand for, and refusals by name."""

import json
import math

import pytest
import torch
import torch.nn.functional as F

from megalite.convert.command import main
from megalite.convert.formats import open_checkpoint
from megalite.convert.options import ReadOptions
from megalite.convert.verify import logits
from megalite.errors import CheckpointError, ConfigError
from tests.convert import models
from tests.convert.models import HEADS, WIDTH, assert_equal, read_tensors, write_case, write_model


def run(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


def convert(source, target, save_format, *more: object) -> None:
    run("--load-dir", source, "--save-dir", target, "--save-format", save_format, *more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", models.CASES)
def test_out_of_megalite_comes_what_went_in(tmp_path, case, dtype):
    source = write_case(tmp_path / "in", case, dtype)
    (source / "tokenizer.json").write_text("{}")
    convert(source, tmp_path / "megalite", "megalite")
    convert(tmp_path / "megalite", tmp_path / "out", "huggingface")
    assert_equal(read_tensors(source), read_tensors(tmp_path / "out"))
    before, after = (json.loads((path / "config.json").read_text()) for path in (source, tmp_path / "out"))
    assert {name: after[name] for name in before} == before
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"


def test_shards_are_of_the_size_that_is_asked_for(tmp_path):
    source = write_case(tmp_path / "in", "llama")
    convert(source, tmp_path / "megalite", "megalite")
    convert(tmp_path / "megalite", tmp_path / "out", "huggingface", "--max-shard-size", "12KB")
    files = sorted((tmp_path / "out").glob("model-*.safetensors"))
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert len(files) > 5 and files[0].name == f"model-00001-of-{len(files):05d}.safetensors"
    assert set(index["weight_map"].values()) == {file.name for file in files}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in read_tensors(source).values())
    assert all(file.stat().st_size < 12_000 + 2_000 for file in files)
    assert_equal(read_tensors(source), read_tensors(tmp_path / "out"))
    convert(tmp_path / "out", tmp_path / "again", "huggingface")  # Shards are read as well.
    assert_equal(read_tensors(source), read_tensors(tmp_path / "again"))


def test_the_same_input_gives_the_same_bytes(tmp_path):
    source = write_case(tmp_path / "in", "gpt2")
    for name in ("one", "two"):
        convert(source, tmp_path / name, "megalite")
        convert(tmp_path / name, tmp_path / f"{name}-out", "huggingface")
    for left, right in (("one", "two"), ("one-out", "two-out")):
        files = sorted(path.relative_to(tmp_path / left) for path in (tmp_path / left).rglob("*") if path.is_file())
        assert len(files) > 1
        for file in files:
            assert (tmp_path / left / file).read_bytes() == (tmp_path / right / file).read_bytes(), file


def test_the_base_model_alone_and_buffers_are_read(tmp_path):
    tensors = models.random_tensors(models.gpt2_shapes())
    whole = write_model(tmp_path / "whole", models.GPT2, tensors)
    base = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    base["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
    bare = write_model(tmp_path / "bare", models.GPT2, base)
    for name in open_checkpoint(whole).names():
        assert torch.equal(open_checkpoint(whole).read(name), open_checkpoint(bare).read(name))


def test_pickled_weights_are_read(tmp_path):
    tensors = models.random_tensors(models.llama_shapes())
    safe = write_model(tmp_path / "safe", models.LLAMA, tensors)
    pickled = write_model(tmp_path / "pickled", models.LLAMA, tensors)
    (pickled / "model.safetensors").unlink()
    torch.save(tensors, pickled / "pytorch_model.bin")
    for name in open_checkpoint(safe).names():
        assert torch.equal(open_checkpoint(safe).read(name), open_checkpoint(pickled).read(name))


def plain_gpt2(tensors: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """GPT-2 from its tensors, written out without any of our code: logits [s, vocabulary] in float64."""
    t = {name.removeprefix("transformer."): tensor.double() for name, tensor in tensors.items()}

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)

    def conv1d(x, name):
        return x @ t[f"{name}.weight"] + t[f"{name}.bias"]

    x = t["wte.weight"][ids] + t["wpe.weight"][: len(ids)]
    mask = torch.full((len(ids), len(ids)), -math.inf, dtype=torch.float64).triu(1)
    for index in range(models.LAYERS):
        h = f"h.{index}"
        q, k, v = conv1d(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn").split(models.HIDDEN, dim=-1)
        heads = [slice(head * WIDTH, (head + 1) * WIDTH) for head in range(HEADS)]
        attended = [(q[:, s] @ k[:, s].T / WIDTH**0.5 + mask).softmax(-1) @ v[:, s] for s in heads]
        x = x + conv1d(torch.cat(attended, -1), f"{h}.attn.c_proj")
        x = x + conv1d(F.gelu(conv1d(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"), approximate="tanh"), f"{h}.mlp.c_proj")
    return norm(x, "ln_f") @ t["wte.weight"].T


def plain_llama(tensors: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """Llama from its tensors, written out without any of our code: logits [s, vocabulary] in float64."""
    t = {name: tensor.double() for name, tensor in tensors.items()}

    def norm(x, name):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * t[f"{name}.weight"]

    angles = torch.arange(len(ids), dtype=torch.float64)[:, None] * 50000.0 ** (
        -torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH
    )
    turn = torch.polar(torch.ones_like(angles), angles)

    def rotate(x):
        half = WIDTH // 2
        turned = torch.complex(x[:, :half], x[:, half:]) * turn
        return torch.cat([turned.real, turned.imag], -1)

    x = t["model.embed_tokens.weight"][ids]
    mask = torch.full((len(ids), len(ids)), -math.inf, dtype=torch.float64).triu(1)
    for index in range(models.LAYERS):
        layer = f"model.layers.{index}"
        y, attended = norm(x, f"{layer}.input_layernorm"), []
        for head in range(HEADS):
            own, group = slice(head * WIDTH, (head + 1) * WIDTH), head // (HEADS // models.GROUPS)
            shared = slice(group * WIDTH, (group + 1) * WIDTH)
            q = rotate(y @ t[f"{layer}.self_attn.q_proj.weight"][own].T)
            k = rotate(y @ t[f"{layer}.self_attn.k_proj.weight"][shared].T)
            v = y @ t[f"{layer}.self_attn.v_proj.weight"][shared].T
            attended.append((q @ k.T / WIDTH**0.5 + mask).softmax(-1) @ v)
        x = x + torch.cat(attended, -1) @ t[f"{layer}.self_attn.o_proj.weight"].T
        y = norm(x, f"{layer}.post_attention_layernorm")
        gate, up = y @ t[f"{layer}.mlp.gate_proj.weight"].T, y @ t[f"{layer}.mlp.up_proj.weight"].T
        x = x + (F.silu(gate) * up) @ t[f"{layer}.mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ t["lm_head.weight"].T


@pytest.mark.parametrize("case, plain", [("gpt2", plain_gpt2), ("llama", plain_llama)])
def test_the_weights_compute_what_they_do_elsewhere(tmp_path, case, plain):
    source = write_case(tmp_path / "in", case)
    ids = torch.tensor([5, 99, 0, 100, 17, 3, 3, 64])
    expected = plain(read_tensors(source), ids)
    assert expected.abs().max() > 0.5
    torch.testing.assert_close(logits(open_checkpoint(source), ids[None]).double(), expected, atol=1e-5, rtol=0)


def edited(tmp_path, base: str, **fields: object):
    directory = write_case(tmp_path / "model", base)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **fields}))
    return directory


REFUSED = [
    ("llama", {"hidden_act": "gelu"}, "hidden_act must be 'silu'"),
    ("llama", {"attention_bias": True}, "attention_bias .True. must equal mlp_bias"),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "it is yarn"),
    (
        "llama",
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0}},
        "rope_scaling must be of type linear",
    ),
    ("llama", {"model_type": "mistral", "sliding_window": 8}, "sliding_window .8. must be null or at least"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ("llama", {"num_key_value_heads": 3}, "must be divisible by num_query_groups .3."),
    ("llama", {"model_type": "mamba"}, "model_type must be one of gpt2, llama"),
    ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1.0"),
    ("gpt2", {"activation_function": "gelu"}, "activation_function must be one of gelu_new"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx must be False"),
    ("gpt2", {"embd_pdrop": 0.3}, "embd_pdrop must be 0.1"),
    ("gpt2", {"n_embd": None}, "must have the field n_embd"),
    ("gpt2", {"n_head": "four"}, "does not describe a model"),
    ("gpt2", {"vocab_size": 102}, "transformer.wte.weight is .101, 24., not .102, 24."),
    ("gpt2", {"n_layer": 5}, "missing: transformer.h.4.attn.c_attn.bias"),
    ("gpt2", {"n_layer": 3}, "not known: transformer.h.3.attn.c_attn.bias"),
    ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before must be True"),
    ("opt", {"word_embed_proj_dim": 12}, "word_embed_proj_dim must be 24"),
    ("opt", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm must be False"),
]


@pytest.mark.parametrize("base, fields, message", REFUSED, ids=[message[:30] for _, _, message in REFUSED])
def test_what_cannot_be_honoured_is_refused_by_name(tmp_path, base, fields, message):
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(edited(tmp_path, base, **fields))


def test_fields_that_do_not_matter_are_not_in_the_way(tmp_path):
    fields = {"torch_dtype": "float16", "transformers_version": "4.40", "some_new_switch": False, "mlp_bias": None}
    open_checkpoint(edited(tmp_path, "llama", **fields))


def test_rope_scaling_is_read_in_both_spellings(tmp_path):
    llama3 = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    old = open_checkpoint(edited(tmp_path / "old", "llama", rope_scaling=llama3, rope_theta=5e5)).config.model
    new = open_checkpoint(edited(tmp_path / "new", "llama", rope_parameters={**llama3, "rope_theta": 5e5})).config.model
    linear = open_checkpoint(
        edited(tmp_path / "linear", "llama", rope_scaling={"type": "linear", "factor": 2.0})
    ).config.model
    assert old == new and (new.use_rope_scaling, new.rope_scaling_factor, new.rotary_base) == (True, 32.0, 5e5)
    assert linear.rotary_seq_len_interpolation_factor == 2.0 and not linear.use_rope_scaling


LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize("fields", [
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"rope_scaling": {"factor": 8.0, **LLAMA3}},
    {"model_type": "mistral", "sliding_window": None},
    {"head_dim": 6, "attention_dropout": 0.25},
])  # fmt: skip
def test_the_configuration_comes_back(tmp_path, fields):
    source = edited(tmp_path, "llama", **fields)
    convert(source, tmp_path / "megalite", "megalite")
    convert(tmp_path / "megalite", tmp_path / "out", "huggingface")
    assert open_checkpoint(tmp_path / "out").config == open_checkpoint(source).config
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {name: written[name] for name in fields} == fields


def test_a_tied_head_may_be_stored_as_long_as_it_is_equal(tmp_path):
    config, shapes = models.CASES["llama tied"]
    tensors = models.random_tensors(shapes)
    equal = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    open_checkpoint(write_model(tmp_path / "equal", config, equal))
    other = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"] + 1}
    with pytest.raises(CheckpointError, match="not known: lm_head.weight"):
        open_checkpoint(write_model(tmp_path / "other", config, other))


def test_damaged_directories_are_named(tmp_path):
    truncated = write_case(tmp_path / "truncated", "gpt2")
    path = truncated / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="truncated/model.safetensors must be a safetensors file"):
        open_checkpoint(truncated)
    garbled = write_case(tmp_path / "garbled", "gpt2")
    (garbled / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="config.json must be a JSON file"):
        open_checkpoint(garbled)
    (garbled / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="must hold a JSON object; it holds a list"):
        open_checkpoint(garbled)
    with pytest.raises(CheckpointError, match="has no steps: drop --ckpt-step 3"):
        open_checkpoint(garbled, options=ReadOptions(step=3))
    (garbled / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="must hold model.safetensors or pytorch_model.bin"):
        (garbled / "config.json").write_text(json.dumps(models.GPT2))
        open_checkpoint(garbled, "huggingface")


def test_quantised_weights_are_refused(tmp_path):
    tensors = models.random_tensors(models.llama_shapes())
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)
    with pytest.raises(CheckpointError, match="model.norm.weight must have one of the dtypes .* it has I8"):
        open_checkpoint(write_model(tmp_path / "model", models.LLAMA, tensors))


def test_optimizer_state_is_not_dropped_silently(tmp_path, trained):
    with pytest.raises(ConfigError, match="cannot hold optimizer state: add --drop-optimizer"):
        convert(trained, tmp_path / "out", "huggingface")
    convert(trained, tmp_path / "out", "huggingface", "--drop-optimizer")


def test_a_model_of_no_family_is_told_why(tmp_path, trained):
    config = trained / "iter_0000005" / "config.yaml"
    config.write_text(config.read_text().replace("learned_absolute", "none"))
    index = trained / "iter_0000005" / "index.json"
    content = json.loads(index.read_text())
    content["files"]["config.yaml"] = {"bytes": config.stat().st_size}
    index.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="opt: position_embedding_type is none, not learned_absolute"):
        convert(trained, tmp_path / "out", "huggingface", "--drop-optimizer")
