"""Settling a checked configuration for a world: what depends on the number of ranks, and what has no effect."""

from typing import Callable

from megalite.config.dump import flat
from megalite.config.fields import all_fields
from megalite.config.root import Config
from megalite.log import logger

IDLE: tuple[tuple[str, Callable[[Config], object], str], ...] = (
    (
        "with --position-embedding-type rope",
        lambda config: config.model.position_embedding_type == "rope",
        "rotary_base rotary_percent rotary_interleaved rotary_seq_len_interpolation_factor use_rope_scaling",
    ),
    ("with --use-rope-scaling", lambda config: config.model.use_rope_scaling, "rope_scaling_factor"),
    ("with --disable-bias-linear", lambda config: config.model.disable_bias_linear, "add_qkv_bias"),
    (
        "with --bf16 or --fp16",
        lambda config: config.training.bf16 or config.training.fp16,
        "fp32_residual_connection attention_softmax_in_fp32",
    ),
    (
        "with --fp16",
        lambda config: config.training.fp16,
        "loss_scale initial_loss_scale min_loss_scale loss_scale_window hysteresis",
    ),
    (
        "with --lr-decay-style WSD",
        lambda config: config.optimizer.lr_decay_style == "WSD",
        "lr_wsd_decay_style lr_wsd_decay_iters lr_wsd_decay_samples",
    ),
    (
        "with another --lr-decay-style than constant",
        lambda config: config.optimizer.lr_decay_style != "constant",
        "min_lr",
    ),
    (
        "with a warm-up",
        lambda config: any(getattr(config.optimizer, f"lr_warmup_{unit}") for unit in ("fraction", "iters", "samples")),
        "lr_warmup_init",
    ),
    (
        "with --weight-decay-incr-style constant",
        lambda config: config.optimizer.weight_decay_incr_style == "constant",
        "weight_decay",
    ),
    ("with --eval-iters above 0", lambda config: config.training.eval_iters > 0, "eval_interval full_validation"),
    (
        "with --position-embedding-type learned_absolute or rope",
        lambda config: config.model.position_embedding_type != "none",
        "reset_position_ids",
    ),
    (
        "with another --optimizer than sgd or lion",
        lambda config: config.optimizer.optimizer not in ("sgd", "lion"),
        "adam_beta1 adam_beta2 adam_eps",
    ),
    (
        "with another --optimizer than adam or lion",
        lambda config: config.optimizer.optimizer not in ("adam", "lion"),
        "sgd_momentum",
    ),
    (
        "with another --optimizer than adam or sgd",
        lambda config: config.optimizer.optimizer not in ("adam", "sgd"),
        "lion_beta1 lion_beta2",
    ),
    (
        "with --save",
        lambda config: config.checkpoint.save is not None,
        "no_save_optim save_hf async_save continue_on_save_failure",
    ),
    (
        "with --save or --load",
        lambda config: config.checkpoint.save is not None or config.checkpoint.load is not None,
        "verify_integrity",
    ),
    (
        "with --keep-last-checkpoints or --save-retain-interval",
        lambda config: config.checkpoint.keep_last_checkpoints or config.checkpoint.save_retain_interval,
        "keep_weights_of_older",
    ),
    (
        "with --load",
        lambda config: config.checkpoint.load is not None,
        "dist_ckpt_strictness use_checkpoint_opt_param_scheduler",
    ),
    (
        "with --load, but not with --finetune",
        lambda config: config.checkpoint.load is not None and not config.checkpoint.finetune,
        "no_load_optim override_opt_param_scheduler allow_data_change",
    ),
    (
        "with --tensorboard-dir",
        lambda config: config.logging.tensorboard_dir is not None,
        "tensorboard_queue_size tensorboard_log_interval log_validation_ppl_to_tensorboard log_timers_to_tensorboard "
        "log_memory_to_tensorboard",
    ),
    (
        "with --tokenizer-type HuggingFaceTokenizer, SentencePieceTokenizer or TikTokenizer",
        lambda config: _tokenizer_is(config, "HuggingFace", "SentencePiece", "Llama2", "TikTokenizer"),
        "tokenizer_model",
    ),
    (
        "with --tokenizer-type GPT2BPETokenizer, BertWordPieceLowerCase or BertWordPieceCase",
        lambda config: _tokenizer_is(config, "GPT2BPE", "BertWordPiece"),
        "vocab_file",
    ),
    (
        "with --tokenizer-type GPT2BPETokenizer",
        lambda config: _tokenizer_is(config, "GPT2BPE"),
        "merge_file",
    ),
    (
        "with --tokenizer-type SentencePieceTokenizer, BertWordPieceLowerCase or BertWordPieceCase",
        lambda config: _tokenizer_is(config, "SentencePiece", "Llama2", "BertWordPiece"),
        "vocab_extra_ids",
    ),
    (
        "with --tokenizer-type TikTokenizer",
        lambda config: _tokenizer_is(config, "TikTokenizer"),
        "tiktoken_pattern tiktoken_num_special_tokens",
    ),
    (
        "with --tokenizer-type or a tokenizer's files",
        lambda config: config.data.tokenizer_kind is not None,
        "eod_token",
    ),
    (
        "with --multiple-validation-sets",
        lambda config: config.data.multiple_validation_sets,
        "validation_set_names",
    ),
    (
        "with --fim-data",
        lambda config: config.data.fim_data,
        "fim_rate fim_spm_rate fim_split_sample fim_fragment_rate fim_no_prefix fim_prefix_token fim_middle_token "
        "fim_suffix_token",
    ),
)
"""When fields have an effect, the test of that, and the fields."""


def _tokenizer_is(config: Config, *families: str) -> bool:
    """Whether the name of the tokenizer's type contains one of ``families``."""
    return any(family in (config.data.tokenizer_kind or "") for family in families)


def idle(config: Config) -> list[str]:
    """One sentence per field that is set but has no effect beside the others."""
    values, notices = flat(config), []
    for condition, has_effect, names in IDLE:
        for name in names.split():
            if values[name] != all_fields()[name].default and not has_effect(config):
                notices.append(f"{name} ({values[name]}) has an effect only {condition}.")
    return notices


def settle(config: Config, world_size: int) -> Config:
    """``config``, which has been checked, with what depends on the number of ranks filled in; notices go to the log.

    Sequence parallelism is off without tensor parallelism, global_batch_size is a number, and tokenizer_type names the
    tokenizer whose files are given.
    """
    for notice in idle(config):
        logger.info(notice)
    if config.parallel.sequence_parallel and config.parallel.tensor_model_parallel_size == 1:
        logger.info("sequence_parallel has no effect with tensor_model_parallel_size 1 and is off.")
        config = config.replace(sequence_parallel=False)
    if config.training.global_batch_size is None:
        micro, dp = config.training.micro_batch_size, config.parallel.data_parallel_size(world_size)
        logger.info(
            f"global_batch_size is {micro * dp} = micro_batch_size ({micro}) x data-parallel size ({dp}): give "
            "--global-batch-size to keep it the same at other layouts."
        )
        config = config.replace(global_batch_size=micro * dp)
    return config.replace(tokenizer_type=config.data.tokenizer_kind)
