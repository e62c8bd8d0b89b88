"""The values that each number may take by itself."""

import math
from typing import Callable, Iterator

from megalite.config.fields import all_fields
from megalite.config.root import Config

RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    (
        "at least 1",
        lambda value: value >= 1,
        "num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups kv_channels seq_length "
        "max_position_embeddings make_vocab_size_divisible_by vocab_size tensor_model_parallel_size "
        "pipeline_model_parallel_size context_parallel_size expert_model_parallel_size "
        "num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank "
        "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
        "microbatch_group_size_per_virtual_pipeline_stage distributed_timeout_minutes ddp_bucket_size "
        "micro_batch_size global_batch_size train_iters train_samples exit_interval exit_duration_in_mins "
        "eval_interval loss_scale_window hysteresis recompute_num_layers lr_decay_iters lr_decay_samples "
        "lr_wsd_decay_iters lr_wsd_decay_samples save_interval save_retain_interval keep_last_checkpoints ckpt_step "
        "log_interval tensorboard_queue_size tensorboard_log_interval rope_scaling_factor num_dataset_builder_threads",
    ),
    (
        "at least 0",
        lambda value: value >= 0,
        "eval_iters num_workers vocab_extra_ids tiktoken_num_special_tokens init_method_std lr min_lr lr_warmup_iters "
        "lr_warmup_samples lr_warmup_init weight_decay start_weight_decay end_weight_decay clip_grad "
        "mid_level_dataset_surplus",
    ),
    (
        "above 0",
        lambda value: value > 0,
        "rotary_base rotary_seq_len_interpolation_factor norm_epsilon loss_scale initial_loss_scale min_loss_scale "
        "adam_eps peak_tflops",
    ),
    (
        "at least 0 and below 1",
        lambda value: 0 <= value < 1,
        "attention_dropout hidden_dropout label_smoothing adam_beta1 adam_beta2 sgd_momentum lion_beta1 lion_beta2 "
        "lr_warmup_fraction",
    ),
    ("from 0 to 1", lambda value: 0 <= value <= 1, "fim_rate fim_spm_rate fim_fragment_rate"),
    ("above 0 and at most 1", lambda value: 0 < value <= 1, "rotary_percent"),
    ("from 0 to 2^63 - 1", lambda value: 0 <= value < 2**63, "seed"),
)
"""What must hold, its test, and the fields that it holds for."""


def every_number_in_its_range(config: Config, world_size: int) -> Iterator[str]:
    for condition, holds, names in RANGES:
        for name in names.split():
            value = getattr(getattr(config, all_fields()[name].group), name)
            if value is not None and not (math.isfinite(value) and holds(value)):
                yield f"{name} must be {condition}; given {value}."


def ramp_up_counts_at_least_one(config: Config, world_size: int) -> Iterator[str]:
    ramp = config.training.rampup_batch_size
    if ramp is not None and min(ramp) < 1:
        yield f"rampup_batch_size (start, increment, samples) must be three numbers of at least 1; given {ramp}."
