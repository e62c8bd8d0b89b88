"""Flags of Megatron-LM: each has exactly one fate, and nothing is silently ignored."""

from pathlib import Path

import pytest

from megalite.config.cli import parse
from megalite.config.fields import all_fields
from megalite.config.megatron import fates, table
from megalite.errors import ConfigError
from tests.config.settings import FLAGS, MODEL, problems

HERE = Path(__file__).parent


def names_in(path: str) -> dict[str, list[str]]:
    """Flag names (with underscores) of a list, by the heading in brackets above them."""
    sections: dict[str, list[str]] = {"": []}
    for line in (HERE / path).read_text().splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = []
        elif not line.startswith("#"):
            sections[list(sections)[-1]] += [name.replace("-", "_") for name in line.split()]
    return sections


ALL_NAMES = names_in("megatron_flag_names.txt")[""]


def meanings(name: str) -> list[str]:
    """Everything that a flag could be taken for."""
    fields = all_fields()
    found = ["field"] if name in fields else []
    if name.startswith("no_") and name[3:] in fields and fields[name[3:]].is_switch:
        found.append("switched-off field")
    return found + [fate.kind for fate in fates(name)]


def test_the_list_of_names_is_whole():
    assert len(ALL_NAMES) == len(set(ALL_NAMES)) > 1000


def test_every_flag_has_exactly_one_fate():
    assert {name: meanings(name) for name in ALL_NAMES if len(meanings(name)) != 1} == {}


def test_every_entry_of_the_table_is_a_flag_of_theirs():
    exact = [name for family in table()["harmless"] + table()["refused"] for name in family["flags"].split()]
    exact += [*table()["translated"], *table()["translated_values"]]
    unknown = {name for name in exact if "*" not in name} - set(ALL_NAMES)
    in_no_script = {"activations_checkpoint_granularity", "activations_checkpoint_num_layers", "layernorm_epsilon"}
    assert unknown == in_no_script


def test_the_table_sets_fields_that_exist():
    by_value = [settings for values in table()["translated_values"].values() for settings in values.values()]
    for settings in [*table()["translated"].values(), *by_value]:
        assert set(settings) <= set(all_fields())
    assert set(table()["weak"]) <= set(table()["translated"])
    assert {*table()["renamed_values"], *table()["refused_values"]} <= set(all_fields())


@pytest.mark.parametrize(
    "flags, fields",
    [
        (["--use-rotary-position-embeddings"], {"position_embedding_type": "rope"}),
        (["--no-position-embedding"], {"position_embedding_type": "none"}),
        (["--no-position-embedding", "--position-embedding-type", "rope"], {"position_embedding_type": "rope"}),
        (["--use-rotary-position-embeddings", "--no-position-embedding"], {"position_embedding_type": "rope"}),
        (["--recompute-activations"], {"recompute_granularity": "selective"}),
        (["--recompute-activations", "--recompute-granularity", "selective"], {"recompute_granularity": "selective"}),
        (
            ["--checkpoint-activations", "--activations-checkpoint-method", "uniform"],
            {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        ),
        (["--activations-checkpoint-method", "block"], {"recompute_granularity": "full", "recompute_method": "block"}),
        (["--model-parallel-size", "4"], {"tensor_model_parallel_size": 4}),
        (["--num-key-value-heads", "2"], {"group_query_attention": True, "num_query_groups": 2}),
        (["--layernorm-epsilon", "1e-6"], {"norm_epsilon": 1e-6}),
        (["--rotary-position-embeddings-theta", "5e5"], {"rotary_base": 5e5}),
        (["--persistent-save-interval", "5"], {"save_interval": 5}),
        (["--zero-stage", "1"], {"use_distributed_optimizer": True}),
        (["--zero-stage", "0"], {"use_distributed_optimizer": False}),
        (["--attention-backend", "flash"], {"attention_backend": "fused"}),
        (["--attention-backend", "local"], {"attention_backend": "unfused"}),
    ],
)
def test_translated(flags, fields):
    assert parse([*MODEL, *flags]) == parse(MODEL).replace(**vars_of(flags), **fields)


def vars_of(flags: list[str]) -> dict[str, object]:
    """What --activations-checkpoint-method sets besides what its cases above say."""
    return {"recompute_num_layers": 1} if flags == ["--activations-checkpoint-method", "block"] else {}


def test_encoder_names_of_the_model():
    flags = "--encoder-num-layers 4 --encoder-seq-length 32 --hidden-size 48 --num-attention-heads 12"
    assert parse(flags.split()) == parse(MODEL)


def test_accepted_flags_are_mentioned_once_each(notices):
    flags = ["--use-mcore-models", "--transformer-impl", "local", "--data-impl", "mmap", "--zero-stage", "0"]
    assert parse([*FLAGS, *flags]) == parse(FLAGS)
    assert notices() == [
        "--use-mcore-models has no effect: there is one implementation of the model.",
        "--transformer-impl local has no effect: there is one implementation of the model.",
        "--data-impl mmap has no effect: data are .bin/.idx pairs, read through a memory map.",
        "--zero-stage 0 is read as: the defaults.",
    ]


@pytest.mark.parametrize(
    "flags, text",
    [
        (
            ["--fp8-format", "hybrid"],
            "--fp8-format cannot be honoured. Parameters and activations are float32, --bf16, --fp16 or --fp64; "
            "float8 and "
            "float4 are not part of megalite.",
        ),
        (["--multi-latent-attention"], "--multi-latent-attention cannot be honoured. Multi-latent attention is"),
        (["--deepspeed"], "--deepspeed cannot be honoured. DeepSpeed is not used."),
        (["--deepspeed_config", "ds.json"], "--deepspeed_config cannot be honoured. DeepSpeed is not used."),
        (["--mock-data"], "--mock-data cannot be honoured. There is no made-up data"),
        (["--fp16-lm-cross-entropy"], "--fp16-lm-cross-entropy cannot be honoured. Losses, main parameters, gradients"),
        (["--nproc_per_node", "4"], "--nproc_per_node cannot be honoured. This is a flag of the launcher: put it"),
        (
            ["--transformer-impl", "inference_optimized"],
            "--transformer-impl must be local or transformer_engine, because there is one implementation of the model; "
            "given inference_optimized.",
        ),
        (["--ckpt-format", "torch"], "--ckpt-format must be torch_dist, because checkpoints are always sharded"),
        (["--dataloader-type", "cyclic"], "--dataloader-type must be single, because samples come in one order"),
        (["--zero-stage", "3"], "--zero-stage must be 0 or 1 here; given 3."),
        (
            ["--tokenizer-type", "SFTTokenizer"],
            "--tokenizer-type SFTTokenizer cannot be honoured. Conversations are not part of megalite",
        ),
        (
            ["--no-pipeline-parallel", "--pipeline-model-parallel-size", "2"],
            "--no-pipeline-parallel and --pipeline-model-parallel-size contradict each other: "
            "pipeline_model_parallel_size "
            "would be 1 and 2. Keep one.",
        ),
        (
            ["--use-rotary-position-embeddings", "--position-embedding-type", "none"],
            "--use-rotary-position-embeddings and --position-embedding-type contradict each other",
        ),
    ],
)
def test_refused(flags, text):
    assert text in problems(*flags)


@pytest.mark.parametrize("script", [name for name in names_in("launch_scripts.txt") if name])
def test_flags_of_public_launch_scripts_are_honoured_or_refused_by_name(script):
    names = names_in("launch_scripts.txt")[script]
    refused = [name for name in names if meanings(name) == ["refused"]]
    assert len(refused) < len(names) / 2
    for name in refused:
        assert f"--{name} cannot be honoured." in problems(f"--{name}")


GPT3 = """--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
--attention-backend auto --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 --weight-decay 0.1
--adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine
--min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000 --tensor-model-parallel-size 8
--pipeline-model-parallel-size 16 --data-path corpus --vocab-file vocab.json --merge-file merges.txt --split 949,50,1
--log-interval 100 --save-interval 10000 --eval-interval 1000 --save out --load out --eval-iters 10
--tensorboard-dir tb"""


def test_the_command_line_of_gpt3_is_honoured_as_it_stands(notices):
    config = parse(GPT3.split())
    assert notices() == []
    assert (config.model.hidden_size, config.optimizer.lr_warmup_fraction) == (12288, 0.001)
    assert (config.training.dtype, config.data.tokenizer_kind) == ("float16", "GPT2BPETokenizer")


def test_the_second_batch_schedule_of_the_gpt3_script_is_refused():
    with pytest.raises(ConfigError, match="--step-batch-size-schedule cannot be honoured. The global batch grows"):
        parse([*GPT3.split(), "--step-batch-size-schedule", "0:768"])
