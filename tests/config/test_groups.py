"""The groups, their derived values and the flat view of all fields."""

import dataclasses
import subprocess
import sys

import pytest

from megalite.config import Config, ModelConfig, ParallelConfig, TrainingConfig
from megalite.config.fields import all_fields, help_texts
from megalite.errors import ConfigError
from tests.config.settings import valid


def model(**fields) -> ModelConfig:
    return ModelConfig(**{"num_layers": 4, "hidden_size": 96, "num_attention_heads": 8, "seq_length": 32, **fields})


def test_importing_the_configuration_needs_no_torch_and_no_time():
    program = (
        "import sys, time; start = time.process_time(); import megalite.config, megalite.config.cli, "
        "megalite.config.check;"
        "print('torch' in sys.modules, time.process_time() - start)"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert output[0] == "False"
    assert float(output[1]) < 0.5


def test_every_field_has_a_help_text_and_a_name_of_its_own():
    assert list(help_texts()) == list(all_fields())
    assert all(text.endswith((".", ".)")) for text in help_texts().values())
    assert len(all_fields()) == sum(len(dataclasses.fields(group.type)) for group in dataclasses.fields(Config))


@pytest.mark.parametrize(
    "fields, ffn",
    [
        ({}, 384),
        ({"swiglu": True}, 256),  # 4 x 96 x 2/3 = 256, a multiple of 64
        ({"swiglu": True, "hidden_size": 4096}, 10880),  # 10922.67 rounded down to a multiple of 64
        ({"swiglu": True, "ffn_hidden_size": 100}, 100),
    ],
)
def test_ffn_size(fields, ffn):
    assert model(**fields).ffn_size == ffn


def test_heads_and_groups():
    assert model().head_dim == 12
    assert model(kv_channels=16).head_dim == 16
    assert model().query_groups == 8
    assert model(group_query_attention=True).query_groups == 1
    assert model(group_query_attention=True, num_query_groups=2).query_groups == 2


def test_activation_and_biases():
    assert model().activation == "gelu"
    assert [model(**{name: True}).activation for name in ("swiglu", "squared_relu", "relu")] == [
        "swiglu",
        "squared_relu",
        "relu",
    ]
    assert (model().linear_bias, model().qkv_bias) == (True, True)
    assert (model(disable_bias_linear=True).linear_bias, model(disable_bias_linear=True).qkv_bias) == (False, False)
    assert model(disable_bias_linear=True, add_qkv_bias=True).qkv_bias
    assert model().tied and not model(untie_embeddings_and_output_weights=True).tied


def test_vocabulary_padding_is_megatrons():
    assert model(vocab_size=50257).padded_vocab_size(1) == 50304
    assert model(vocab_size=50257).padded_vocab_size(8) == 51200
    assert model(vocab_size=51200).padded_vocab_size(8) == 51200
    assert model(vocab_size=101, make_vocab_size_divisible_by=1).padded_vocab_size(4) == 104


def test_positions_default_to_the_sequence():
    assert model().num_positions == 32
    assert model(max_position_embeddings=64).num_positions == 64


@pytest.mark.parametrize(
    "flags, dtype",
    [({}, "float32"), ({"bf16": True}, "bfloat16"), ({"fp16": True}, "float16"), ({"fp64": True}, "float64")],
)
def test_dtype(flags, dtype):
    assert TrainingConfig(**flags).dtype == dtype


def test_data_parallel_size():
    assert ParallelConfig(tensor_model_parallel_size=2, pipeline_model_parallel_size=3).data_parallel_size(24) == 4


@pytest.mark.parametrize(
    "fields, virtual",
    [
        ({}, 1),
        ({"num_virtual_stages_per_pipeline_rank": 3}, 3),
        ({"num_layers_per_virtual_pipeline_stage": 1}, 4),
        ({"num_layers_per_virtual_pipeline_stage": 1, "pipeline_model_parallel_size": 2}, 2),
        ({"num_layers": 10, "num_layers_per_virtual_pipeline_stage": 3, "pipeline_model_parallel_size": 2,
          "account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}, 2),
        ({"num_layers": 14, "num_layers_per_virtual_pipeline_stage": 2, "pipeline_model_parallel_size": 4,
          "decoder_first_pipeline_num_layers": 2}, 2),  # 12 layers on the 3 other ranks
        ({"pipeline_model_parallel_layout": "Ett|tt|tt|ttL", "pipeline_model_parallel_size": 2}, 2),
        ({"pipeline_model_parallel_layout": "E,(t|)*4,L", "pipeline_model_parallel_size": 1}, 5),
        ({"pipeline_model_parallel_layout": "E((t|)*2 t|)*3 |*2 L", "pipeline_model_parallel_size": 3}, 4),
    ],
)  # fmt: skip
def test_virtual_stages(fields, virtual):
    assert valid(**fields).virtual_stages == virtual


@pytest.mark.parametrize("layout", ["Ett(|ttL", "Ett)|ttL", "", "*", "E**3tL"])
def test_a_malformed_layout_is_left_to_the_layouts_parser(layout):
    assert valid(pipeline_model_parallel_layout=layout).virtual_stages >= 1


def test_virtual_stages_that_do_not_divide():
    with pytest.raises(ConfigError, match=r"\(3\) must divide .* given 4 layers .* for 1 ranks"):
        valid(num_layers_per_virtual_pipeline_stage=3).virtual_stages
    with pytest.raises(ConfigError, match="for 0 ranks"):
        valid(num_layers_per_virtual_pipeline_stage=1, decoder_first_pipeline_num_layers=1).virtual_stages
    with pytest.raises(ConfigError, match=r"pipeline_model_parallel_size \(2\); Et\|t\|ttL has 3"):
        valid(pipeline_model_parallel_layout="Et|t|ttL", pipeline_model_parallel_size=2).virtual_stages


def test_replace_sets_fields_of_any_group():
    config = valid()
    changed = config.replace(seed=7, hidden_size=60, save="x")
    assert (changed.training.seed, changed.model.hidden_size, changed.checkpoint.save) == (7, 60, "x")
    assert config.training.seed == 1234
    assert changed.replace(seed=1234, hidden_size=48, save=None) == config
    with pytest.raises(AssertionError, match="hiden_size"):
        config.replace(hiden_size=1)


def test_the_tokenizer_follows_from_its_files():
    assert valid().data.tokenizer_kind is None
    assert valid(tokenizer_model="t.json").data.tokenizer_kind == "HuggingFaceTokenizer"
    assert valid(vocab_file="v", merge_file="m").data.tokenizer_kind == "GPT2BPETokenizer"
    assert valid(vocab_file="v", tokenizer_type="NullTokenizer").data.tokenizer_kind == "NullTokenizer"
