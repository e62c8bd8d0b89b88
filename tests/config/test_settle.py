"""What settling fills in and mentions."""

import pytest

from megalite.config.fields import all_fields
from megalite.config.settle import IDLE, idle, settle
from tests.config.settings import valid


def test_a_settled_configuration_stays_as_it_is(notices):
    assert settle(valid(), 4) == valid()
    assert notices() == []


def test_the_global_batch_defaults_to_one_micro_batch_per_replica(notices):
    config = settle(valid(global_batch_size=None, tensor_model_parallel_size=2), 8)
    assert config.training.global_batch_size == 8
    assert notices() == [
        "global_batch_size is 8 = micro_batch_size (2) x data-parallel size (4): give --global-batch-size to keep it "
        "the same "
        "at other layouts."
    ]


def test_sequence_parallelism_is_off_without_tensor_parallelism(notices):
    assert settle(valid(sequence_parallel=True), 1).parallel.sequence_parallel is False
    assert notices() == ["sequence_parallel has no effect with tensor_model_parallel_size 1 and is off."]
    assert settle(valid(sequence_parallel=True, tensor_model_parallel_size=2), 2).parallel.sequence_parallel is True


def test_the_tokenizer_of_given_files_is_named():
    assert settle(valid(vocab_file="v", merge_file="m"), 1).data.tokenizer_type == "GPT2BPETokenizer"
    assert settle(valid(), 1).data.tokenizer_type is None


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"rotary_base": 5e5}, "rotary_base (500000.0) has an effect only with --position-embedding-type rope."),
        ({"initial_loss_scale": 65536.0, "bf16": True}, "initial_loss_scale (65536.0) has an effect only with --fp16."),
        ({"sgd_momentum": 0.5}, "sgd_momentum (0.5) has an effect only with another --optimizer than adam or lion."),
        (
            {"fp32_residual_connection": True},
            "fp32_residual_connection (True) has an effect only with --bf16 or --fp16.",
        ),
        (
            {"no_load_optim": True},
            "no_load_optim (True) has an effect only with --load, but not with --finetune.",
        ),
        (
            {"allow_data_change": True, "load": "x", "finetune": True},
            "allow_data_change (True) has an effect only with --load, but not with --finetune.",
        ),
        (
            {"dist_ckpt_strictness": "log_all"},
            "dist_ckpt_strictness (log_all) has an effect only with --load.",
        ),
        (
            {"min_lr": 1e-4, "lr_decay_style": "constant"},
            "min_lr (0.0001) has an effect only with another --lr-decay-style than constant.",
        ),
        ({"lr_warmup_init": 1e-4}, "lr_warmup_init (0.0001) has an effect only with a warm-up."),
        (
            {
                "weight_decay": 0.3,
                "weight_decay_incr_style": "linear",
                "start_weight_decay": 0.0,
                "end_weight_decay": 0.1,
            },
            "weight_decay (0.3) has an effect only with --weight-decay-incr-style constant.",
        ),
        (
            {"eval_iters": 0, "eval_interval": 2},
            "eval_interval (2) has an effect only with --eval-iters above 0.",
        ),
        (
            {"reset_position_ids": True, "position_embedding_type": "none"},
            "reset_position_ids (True) has an effect only with --position-embedding-type learned_absolute or rope.",
        ),
        ({"async_save": True}, "async_save (True) has an effect only with --save."),
        ({"verify_integrity": True}, "verify_integrity (True) has an effect only with --save or --load."),
        (
            {"keep_weights_of_older": True, "save": "a", "save_interval": 5},
            "keep_weights_of_older (True) has an effect only with --keep-last-checkpoints or --save-retain-interval.",
        ),
        ({"tensorboard_queue_size": 5}, "tensorboard_queue_size (5) has an effect only with --tensorboard-dir."),
        (
            {"tokenizer_type": "NullTokenizer", "vocab_extra_ids": 3},
            "vocab_extra_ids (3) has an effect only with --tokenizer-type SentencePieceTokenizer, "
            "BertWordPieceLowerCase or BertWordPieceCase.",
        ),
        (
            {"tokenizer_type": "Llama2Tokenizer", "tiktoken_pattern": "v1"},
            "tiktoken_pattern (v1) has an effect only with --tokenizer-type TikTokenizer.",
        ),
        (
            {"eod_token": "</s>"},
            "eod_token (</s>) has an effect only with --tokenizer-type or a tokenizer's files.",
        ),
        (
            {"merge_file": "m", "tokenizer_type": "NullTokenizer"},
            "merge_file (m) has an effect only with --tokenizer-type GPT2BPETokenizer.",
        ),
    ],
)
def test_settings_without_effect_are_mentioned(fields, text):
    assert idle(valid(**fields)) == [text]


@pytest.mark.parametrize(
    "fields",
    [
        {"rotary_base": 5e5, "position_embedding_type": "rope"},
        {"initial_loss_scale": 65536.0, "fp16": True},
        {"sgd_momentum": 0.5, "optimizer": "sgd"},
        {"sgd_momentum": 0.5, "optimizer": "mine"},
        {"no_load_optim": True, "load": "x"},
    ],
)
def test_settings_with_effect_are_not(fields):
    assert idle(valid(**fields)) == []


def test_the_table_names_fields():
    assert {name for _, _, names in IDLE for name in names.split()} <= set(all_fields())
