"""Every rule, each by a configuration that breaks it."""

import time

import pytest

from megalite.config.check import check, rules_of
from megalite.config.fields import all_fields
from megalite.config.rules import checkpoint, data, model, optimizer, parallel, ranges, training
from megalite.errors import ConfigError, TokenizerError
from tests.config.settings import valid

BROKEN = [
    # model
    (
        {"hidden_size": 100, "num_attention_heads": 12},
        1,
        "hidden_size (100) must be divisible by num_attention_heads (12): use 96 or 108, or set kv_channels.",
    ),
    ({"num_query_groups": 4}, 1, "num_query_groups (4) needs group_query_attention: add --group-query-attention."),
    (
        {"group_query_attention": True, "num_query_groups": 5},
        1,
        "num_attention_heads (12) must be divisible by num_query_groups (5): use 1, 2, 3, 4, 6 or 12 query groups.",
    ),
    (
        {"tensor_model_parallel_size": 8},
        8,
        "num_attention_heads (12) must be divisible by tensor_model_parallel_size (8): use 1, 2, 3, 4, 6 or 12.",
    ),
    (
        {"group_query_attention": True, "num_query_groups": 2, "tensor_model_parallel_size": 4},
        4,
        "num_query_groups (2) must be divisible by tensor_model_parallel_size (4): use 1 or 2.",
    ),
    (
        {"ffn_hidden_size": 9, "tensor_model_parallel_size": 4},
        4,
        "ffn_hidden_size (9) must be divisible by tensor_model_parallel_size (4): use 8 or 12.",
    ),
    (
        {"hidden_size": 12, "swiglu": True},
        1,
        "ffn_hidden_size must be given when hidden_size (12) is below 24 under swiglu.",
    ),
    (
        {"hidden_size": 36, "position_embedding_type": "rope"},
        1,
        "position_embedding_type rope must rotate an even number of channels of each head; head dimension 3 x "
        "rotary_percent "
        "(1.0) gives 3: change num_attention_heads, kv_channels or rotary_percent.",
    ),
    (
        {"position_embedding_type": "rope", "rotary_percent": 0.3},
        1,
        "position_embedding_type rope must rotate an even number of channels of each head; head dimension 4 x "
        "rotary_percent "
        "(0.3) gives 1: change num_attention_heads, kv_channels or rotary_percent.",
    ),
    (
        {"seq_length": 64, "max_position_embeddings": 32},
        1,
        "seq_length (64) must be at most max_position_embeddings (32) with learned positions: raise it, shorten "
        "seq_length, "
        "or use --position-embedding-type rope.",
    ),
    (
        {"swiglu": True, "relu": True},
        1,
        "at most one activation may be chosen; given swiglu and relu: keep one.",
    ),
    (
        {"attention_backend": "fused"},
        1,
        "attention_backend fused needs attention_dropout 0; given 0.1: set it to 0, or use --attention-backend auto or "
        "unfused.",
    ),
    (
        {"hidden_dropout": 7e-6},
        1,
        "hidden_dropout is rounded to a multiple of 2^-16, and must not become 0 or 1 by that; given 7e-06: use 0, or "
        "from 2^-16 (0.000015258789) to 1 - 2^-16 (0.99998474).",
    ),
    (
        {"attention_dropout": 0.999999},
        1,
        "attention_dropout is rounded to a multiple of 2^-16, and must not become 0 or 1 by that; given 0.999999: use "
        "0, or from 2^-16 (0.000015258789) to 1 - 2^-16 (0.99998474).",
    ),
    # parallel
    (
        {"tensor_model_parallel_size": 2},
        1,
        "the number of processes (1) must be divisible by tensor_model_parallel_size (2) x "
        "pipeline_model_parallel_size (1) x "
        "context_parallel_size (1) = 2: start 2 processes (torchrun --nproc-per-node), or change the sizes.",
    ),
    (
        {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 3},
        8,
        "the number of processes (8) must be divisible by tensor_model_parallel_size (2) x "
        "pipeline_model_parallel_size (3) x "
        "context_parallel_size (1) = 6: start 6 or 12 processes (torchrun --nproc-per-node), or change the sizes.",
    ),
    (
        {"context_parallel_size": 2},
        2,
        "context_parallel_size must be 1, because sequences are not split over ranks yet; given 2: use "
        "tensor_model_parallel_size with --sequence-parallel.",
    ),
    (
        {"expert_model_parallel_size": 2},
        2,
        "expert_model_parallel_size must be 1, because there are no experts yet; given 2: drop the flag.",
    ),
    (
        {"sequence_parallel": True, "seq_length": 33, "tensor_model_parallel_size": 4},
        4,
        "seq_length (33) must be divisible by tensor_model_parallel_size (4) under sequence_parallel: use 32 or 36.",
    ),
    (
        {"num_virtual_stages_per_pipeline_rank": 2, "num_layers_per_virtual_pipeline_stage": 1},
        1,
        "virtual pipeline stages must be set in one way; given num_layers_per_virtual_pipeline_stage 1, "
        "num_virtual_stages_per_pipeline_rank 2: keep one.",
    ),
    (
        {"num_layers_per_virtual_pipeline_stage": 3},
        1,
        "num_layers_per_virtual_pipeline_stage (3) must divide the layers of each rank; given 4 layers (with the "
        "embedding "
        "and the loss where they count) for 1 ranks to share evenly: change one of them, or give "
        "--num-virtual-stages-per-pipeline-rank or --pipeline-model-parallel-layout.",
    ),
    (
        {"microbatch_group_size_per_virtual_pipeline_stage": 4},
        1,
        "microbatch_group_size_per_virtual_pipeline_stage (4) needs several virtual stages per rank: add "
        "--num-virtual-stages-per-pipeline-rank, or drop it.",
    ),
    (
        {"overlap_param_gather": True},
        1,
        "overlap_param_gather needs use_distributed_optimizer: add --use-distributed-optimizer, or drop it.",
    ),
    # training
    ({"bf16": True, "fp16": True}, 1, "at most one precision may be chosen; given bf16 and fp16: keep one."),
    (
        {"fp16": True, "grad_reduce_in_bf16": True},
        1,
        "grad_reduce_in_bf16 needs bf16; the model is float16: add --bf16, or drop it.",
    ),
    (
        {"train_samples": 80},
        1,
        "the length of training must be given once; given train_iters 10 and train_samples 80: keep one.",
    ),
    (
        {"train_iters": None},
        1,
        "the length of training must be given: add --train-iters or --train-samples (or --skip-train).",
    ),
    (
        {"global_batch_size": 10},
        3,
        "global_batch_size (10) must be divisible by micro_batch_size (2) x data-parallel size (3) = 6: use 6 or 12, "
        "or "
        "another micro_batch_size or number of processes.",
    ),
    (
        {"global_batch_size": 4, "micro_batch_size": 8},
        1,
        "global_batch_size (4) must be divisible by micro_batch_size (8) x data-parallel size (1) = 8: use 8, or "
        "another "
        "micro_batch_size or number of processes.",
    ),
    (
        {"rampup_batch_size": (2, 2, 8)},
        1,
        "rampup_batch_size needs a length in samples: replace --train-iters by --train-samples.",
    ),
    (
        {"rampup_batch_size": (2, 2, 8), "global_batch_size": None, "train_iters": None, "train_samples": 80},
        1,
        "rampup_batch_size needs global_batch_size, at which it ends: add --global-batch-size.",
    ),
    (
        {"recompute_granularity": "full", "recompute_method": "block"},
        1,
        "recompute_granularity full needs recompute_num_layers: for example uniform and 1.",
    ),
    (
        {"recompute_granularity": "selective", "recompute_method": "uniform", "recompute_num_layers": 1},
        1,
        "recompute_method uniform and recompute_num_layers 1 needs recompute_granularity full; given selective: add "
        "--recompute-granularity full, or drop the other.",
    ),
    (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 5},
        1,
        "recompute_num_layers (5) must be at most num_layers (4): use 1 to 4.",
    ),
    # optimizer
    ({"lr": None}, 1, "lr must be given for training: add --lr."),
    ({"min_lr": 0.01}, 1, "min_lr (0.01) must be at most lr (0.001): lower min_lr or raise lr."),
    ({"lr_warmup_init": 0.1}, 1, "lr_warmup_init (0.1) must be at most lr (0.001): lower lr_warmup_init or raise lr."),
    (
        {"lr_decay_samples": 80},
        1,
        "lr_decay_samples (80) cannot be used with train_iters, which counts steps: give lr_decay_iters instead.",
    ),
    (
        {"train_iters": None, "train_samples": 80, "lr_warmup_iters": 2},
        1,
        "lr_warmup_iters (2) cannot be used with train_samples, which counts samples: give lr_warmup_samples instead.",
    ),
    (
        {"lr_warmup_fraction": 0.1, "lr_warmup_iters": 2},
        1,
        "the warm-up must be given once; given lr_warmup_fraction 0.1 and lr_warmup_iters 2: keep one.",
    ),
    (
        {"lr_warmup_iters": 10},
        1,
        "lr_warmup_iters (10) must be less than the length of the decay, lr_decay_iters or train_iters (10): shorten "
        "the "
        "warm-up or lengthen the decay.",
    ),
    (
        {"train_iters": None, "train_samples": 80, "lr_decay_samples": 40, "lr_warmup_samples": 50},
        1,
        "lr_warmup_samples (50) must be less than the length of the decay, lr_decay_samples or train_samples (40): "
        "shorten "
        "the warm-up or lengthen the decay.",
    ),
    (
        {"lr_decay_style": "WSD"},
        1,
        "lr_decay_style WSD needs the length of its last phase: add --lr-wsd-decay-iters.",
    ),
    (
        {"lr_decay_style": "WSD", "lr_warmup_fraction": 0.45, "lr_wsd_decay_iters": 6},
        1,
        "the warm-up (4.5 steps by lr_warmup_fraction 0.45) and lr_wsd_decay_iters (6) together must be at most the "
        "length of the decay, lr_decay_iters or train_iters (10): shorten one of them.",
    ),
    (
        {"lr_decay_style": "WSD", "lr_warmup_iters": 4, "lr_wsd_decay_iters": 7},
        1,
        "lr_warmup_iters (4) and lr_wsd_decay_iters (7) together must be at most the length of the decay, "
        "lr_decay_iters or "
        "train_iters (10): shorten one of them.",
    ),
    (
        {"start_weight_decay": 0.1},
        1,
        "start_weight_decay (0.1) and end_weight_decay (None) need weight_decay_incr_style linear or cosine; given "
        "constant: "
        "change the style, or use weight_decay.",
    ),
    (
        {"weight_decay_incr_style": "linear", "end_weight_decay": 0.1},
        1,
        "weight_decay_incr_style linear needs start_weight_decay (None) and end_weight_decay (0.1): add the missing "
        "one.",
    ),
    (
        {"override_opt_param_scheduler": True, "use_checkpoint_opt_param_scheduler": True},
        1,
        "the curves of a resumed run come from one place; given override_opt_param_scheduler and "
        "use_checkpoint_opt_param_scheduler: keep one.",
    ),
    # data
    (
        {"train_data_path": ("a",)},
        1,
        "data_path cannot be used with train_data_path: keep one way to name corpora.",
    ),
    (
        {"data_path": (), "train_data_path": ("a",), "split": "9,1,0"},
        1,
        "split (9,1,0) divides data_path or data_args_path and cannot be used with train_data_path: drop it.",
    ),
    (
        {"data_path": ()},
        1,
        "training needs a corpus, as tools/preprocess_data.py writes it: add --data-path or --train-data-path.",
    ),
    (
        {"data_path": (), "skip_train": True},
        1,
        "evaluation needs a corpus: add --data-path PREFIX, --valid-data-path or --test-data-path.",
    ),
    (
        {"data_path": (), "train_data_path": ("a",), "eval_interval": 5},
        1,
        "eval_interval (5) needs valid_data_path beside train_data_path: add --valid-data-path, or set --eval-iters 0.",
    ),
    (
        {"fim_data": True, "fim_split_sample": "<file_sep>"},
        1,
        "fim_split_sample (<file_sep>) and fim_fragment_rate (None) go together: give both or none.",
    ),
    (
        {"tokenizer_type": "HuggingFaceTokenizer"},
        1,
        "tokenizer_type HuggingFaceTokenizer needs a tokenizer.json: add --tokenizer-model.",
    ),
    (
        {"vocab_file": "vocab.json"},
        1,
        "a GPT-2 tokenizer needs vocab_file and merge_file; merge_file not given: add them.",
    ),
    ({"tokenizer_type": "NullTokenizer"}, 1, "tokenizer_type NullTokenizer needs vocab_size: add --vocab-size."),
    (
        {"tokenizer_model": "t.json", "vocab_file": "vocab.json"},
        1,
        "one tokenizer must be meant; given tokenizer_model (t.json) and vocab_file: drop one, or say which by "
        "--tokenizer-type.",
    ),
    # checkpoint
    ({"save": "out"}, 1, "save (out) needs save_interval: add --save-interval with a number of steps."),
    ({"save_interval": 5}, 1, "save_interval (5) needs save: add --save DIR."),
    (
        {"save": "out", "save_interval": 4, "save_retain_interval": 6},
        1,
        "save_retain_interval (6) must be a multiple of save_interval (4): use 4 or 8.",
    ),
    ({"ckpt_step": 5}, 1, "ckpt_step (5) needs load: add --load DIR, or drop it."),
    ({"finetune": True}, 1, "finetune needs load: add --load DIR, or drop it."),
    # single numbers
    ({"micro_batch_size": 0}, 1, "micro_batch_size must be at least 1; given 0."),
    ({"eval_iters": -1}, 1, "eval_iters must be at least 0; given -1."),
    ({"save": "out", "save_interval": 0}, 1, "save_interval must be at least 1; given 0."),
    ({"norm_epsilon": 0.0}, 1, "norm_epsilon must be above 0; given 0.0."),
    ({"adam_beta1": 1.0}, 1, "adam_beta1 must be at least 0 and below 1; given 1.0."),
    ({"hidden_dropout": 1.0}, 1, "hidden_dropout must be at least 0 and below 1; given 1.0."),
    ({"rotary_percent": 0.0}, 1, "rotary_percent must be above 0 and at most 1; given 0.0."),
    ({"clip_grad": float("inf")}, 1, "clip_grad must be at least 0; given inf."),
    ({"seed": -1}, 1, "seed must be from 0 to 2^63 - 1; given -1."),
    ({"seed": 2**63}, 1, "seed must be from 0 to 2^63 - 1; given 9223372036854775808."),
    (
        {"rampup_batch_size": (2, 0, 8)},
        1,
        "rampup_batch_size (start, increment, samples) must be three numbers of at least 1; given (2, 0, 8).",
    ),
]


@pytest.mark.parametrize("fields, world_size, text", BROKEN)
def test_a_broken_rule_says_what_must_hold_what_was_given_and_what_to_change(fields, world_size, text):
    with pytest.raises(ConfigError) as caught:
        check(valid(**fields), world_size)
    assert str(caught.value) == text


def test_every_rule_is_broken_by_a_case_above():
    modules = (ranges, model, parallel, training, optimizer, data, checkpoint)
    every = {rule for module in modules for rule in rules_of(module)}
    broken = set()
    for fields, world_size, _ in BROKEN:
        config = valid(**fields)
        in_range = not any(list(rule(config, world_size)) for rule in rules_of(ranges))
        tried = every if in_range else rules_of(ranges)
        broken |= {rule for rule in tried if list(rule(config, world_size))}
    assert every - broken == set()
    assert len(every) > 35


GOOD = [
    ({}, 1),
    ({}, 4),
    ({"seed": 0}, 1),
    ({"seed": 2**63 - 1}, 1),
    ({"sequence_parallel": True, "seq_length": 33}, 1),
    ({"num_virtual_stages_per_pipeline_rank": 2, "microbatch_group_size_per_virtual_pipeline_stage": 2}, 1),
    ({"kv_channels": 7}, 1),
    ({"max_position_embeddings": 16, "position_embedding_type": "rope"}, 1),
    ({"attention_backend": "fused", "attention_dropout": 0.0}, 1),
    ({"skip_train": True, "train_iters": None, "lr": None}, 1),
    ({"global_batch_size": None}, 4),
    ({"lr_warmup_iters": 9}, 1),
    ({"lr_decay_style": "constant", "min_lr": 0.001}, 1),
    ({"lr_decay_style": "WSD", "lr_warmup_iters": 4, "lr_wsd_decay_iters": 6}, 1),
    ({"data_path": (), "train_data_path": ("a",), "valid_data_path": ("b",), "eval_interval": 5}, 1),
    ({"save": "out", "save_interval": 5, "load": "out", "exit_on_missing_checkpoint": True}, 1),
    ({"tokenizer_type": "NullTokenizer", "vocab_size": 100}, 1),
]


@pytest.mark.parametrize("fields, world_size", GOOD)
def test_good_configurations_pass(fields, world_size):
    check(valid(**fields), world_size)


@pytest.mark.parametrize(
    "fields, world_size",
    [(fields, world_size) for fields, world_size, text in BROKEN if "divisible by" in text and "use" in text],
)
def test_one_of_the_suggested_numbers_mends_it(fields, world_size):
    """Each message about divisibility ends with numbers; with one of them in place of some number given, it is gone."""
    with pytest.raises(ConfigError) as caught:
        check(valid(**fields), world_size)
    text = str(caught.value)
    advice = text.rsplit(": use " if ": use " in text else ": start ", 1)[1]
    numbers = [int(word) for word in advice.replace(",", " ").replace(".", " ").split() if word.isdigit()]
    tried = [{**fields, name: number} for name, old in fields.items() if type(old) is int for number in numbers]
    mended = [(valid(**changed), world_size) for changed in tried] + [(valid(**fields), number) for number in numbers]
    assert any(passes(config, world) for config, world in mended)


def passes(config, world_size: int) -> bool:
    try:
        check(config, world_size)
    except ConfigError:
        return False
    return True


def test_all_violations_are_reported_together_at_once():
    broken = valid(tensor_model_parallel_size=8, fp16=True, bf16=True, lr=None, save="out")
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        check(broken, 12)
    assert time.process_time() - start < 1
    text = str(caught.value)
    assert text.startswith("5 problems:\n  - num_attention_heads (12)")
    assert all(word in text for word in ("processes (12)", "bf16 and fp16", "lr must be given", "save (out)"))
    assert caught.value.same_on_every_rank


def test_further_checks_join_the_list():
    def refuse():
        raise TokenizerError("no tokenizer here.")

    with pytest.raises(ConfigError, match="2 problems:\n  - lr must be given.*\n  - no tokenizer here."):
        check(valid(lr=None), 1, also=[refuse, lambda: None])
    with pytest.raises(ConfigError, match="^micro_batch_size must be at least 1; given 0.$"):
        check(valid(micro_batch_size=0), 1, also=[refuse])


def test_every_number_has_a_range():
    numbers = [name for name, field in all_fields().items() if field.type in (int, float)]
    listed = [name for _, _, names in ranges.RANGES for name in names.split()]
    assert sorted(listed) == sorted(numbers)
