"""Megatron-LM's arguments, which its checkpoints keep, and our configuration: most names are the same."""

import argparse
from typing import Any

import torch

from megalite.config import Config
from megalite.config.fields import Field, all_fields, assemble
from megalite.convert.megatron.layout import Grid
from megalite.errors import CheckpointError, ConfigError
from megalite.log import logger

_GROUPS = ("model", "training", "optimizer")
"""Groups of our settings that say what was trained, and how; the others say where and with what files."""

# Arguments that change the function in a way that megalite has not, and the values under which they do not.
_NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "num_experts": (None, 0),
    "multi_latent_attention": (False,),
    "mtp_num_layers": (None, 0),
    "apply_layernorm_1p": (False,),
    "window_size": (None,),
    "softmax_type": ("vanilla",),
    "quick_geglu": (False,),
    "glu_linear_offset": (0.0,),
    "activation_func_clamp_value": (None,),
    "apply_residual_connection_post_layernorm": (False,),
    "enable_mhc_connections": (False,),
    "use_mup": (False,),
    "experimental_attention_variant": (None,),
    "qk_l2_norm": (False,),
    "no_rope_freq": (None,),
    "attention_output_gate": (False,),
    "hybrid_layer_pattern": (None,),
    "heterogeneous_layers_config_path": (None,),
    "rotary_scaling_factor": (None, 1.0),
}


def config_from(arguments: argparse.Namespace, vocab_size: int | None, where: str) -> tuple[Config, int]:
    """Our configuration, and the padded size of the vocabulary.

    ``vocab_size``: the size without padding, which Megatron-LM does not always keep; None to take what it keeps, else
    the padded one. Raises :class:`CheckpointError` for a model that megalite cannot honour.
    """
    given = vars(arguments)
    _refuse_foreign(given, where)
    _warn_of_exact_gelu(given, where)
    values = {name: value for name, field in all_fields().items() if (value := _value(given, field)) is not None}
    missing = [name for name, field in all_fields().items() if field.required and name not in values]
    if missing or not isinstance(given.get("padded_vocab_size"), int):
        named = ", ".join([*missing, *(() if "padded_vocab_size" in given else ("padded_vocab_size",))])
        raise CheckpointError(f"{where}: its args must tell what the model is; missing: {named}.")
    if "add_bias_linear" in given:
        values["disable_bias_linear"] = not given["add_bias_linear"]
    if not given.get("group_query_attention"):
        values.pop("num_query_groups", None)  # There, a number without a meaning.
    if "norm_epsilon" not in given and "layernorm_epsilon" in given:
        values["norm_epsilon"] = given["layernorm_epsilon"]
    padded = given["padded_vocab_size"]
    values["vocab_size"] = _vocab_size(given, vocab_size, padded)
    if vocab_size is None and given.get("vocab_size") is None:
        logger.warning(
            f"{where} does not tell the size of the vocabulary without padding: taking {padded}; see --true-vocab-size"
        )
    dtype = given.get("params_dtype")
    values.update(bf16=dtype == torch.bfloat16, fp16=dtype == torch.float16, fp64=dtype == torch.float64)
    return assemble(values), padded


def _refuse_foreign(given: dict[str, Any], where: str) -> None:
    foreign = [
        f"{name} ({given[name]})"
        for name, neutral in _NEUTRAL_VALUES.items()
        if given.get(name, neutral[0]) not in neutral
    ]
    kind = given.get("position_embedding_type", "learned_absolute")
    choices = all_fields()["position_embedding_type"].choices
    if kind not in choices:
        foreign.append(f"position_embedding_type ({kind}, not one of {', '.join(choices)})")
    if foreign:
        raise CheckpointError(f"{where}: megalite has no model with {', '.join(foreign)}.")


def _warn_of_exact_gelu(given: dict[str, Any], where: str) -> None:
    # Megatron-LM computes the tanh form in its fusion with the bias only.
    other = any(given.get(name) for name in ("swiglu", "squared_relu", "openai_gelu"))
    fused = given.get("bias_gelu_fusion", True) and given.get("add_bias_linear", True)
    if not other and not fused:
        logger.warning(
            f"{where} was trained with the exact GELU, as bias_gelu_fusion or add_bias_linear is False there; megalite "
            "computes its tanh form, which differs by up to 0.0005: compare the loss before you train on"
        )


def _value(given: dict[str, Any], field: Field) -> Any:
    """The value of one of our settings, if Megatron-LM has one of its kind."""
    value = given.get(field.name)
    if field.group not in _GROUPS or isinstance(value, (list, tuple, dict)):
        return None
    if field.choices:
        return value if value in field.choices else None
    if field.type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if type(value) is field.type else None


def _vocab_size(given: dict[str, Any], wanted: int | None, padded: int) -> int:
    kept = given.get("vocab_size")
    if kept is not None and given.get("tokenizer_type") == "NullTokenizer":
        kept += 1  # Its end-of-document token.
    size = wanted or kept or padded
    if not 0 < size <= padded:
        raise ConfigError(f"--true-vocab-size must be from 1 to the padded size ({padded}); given {size}.")
    return size


def arguments_from(config: Config, grid: Grid, padded_vocab_size: int, consumed_samples: int) -> argparse.Namespace:
    """The arguments of a Megatron-LM run that would have written the checkpoint."""
    model, training = config.model, config.training
    values: dict[str, Any] = {
        name: getattr(getattr(config, field.group), name)
        for name, field in all_fields().items()
        if field.group in _GROUPS and name not in ("model", "fp64", "relu", "disable_bias_linear")
    }
    values.update(
        ffn_hidden_size=model.ffn_size,
        kv_channels=model.head_dim,
        num_query_groups=model.query_groups,
        max_position_embeddings=model.num_positions,
        add_position_embedding=model.position_embedding_type == "learned_absolute",
        use_rotary_position_embeddings=model.position_embedding_type == "rope",
        add_bias_linear=model.linear_bias,
        padded_vocab_size=padded_vocab_size,
        params_dtype=getattr(torch, training.dtype),
        tensor_model_parallel_size=grid.tp,
        pipeline_model_parallel_size=grid.pp,
        virtual_pipeline_model_parallel_size=grid.virtual if grid.virtual > 1 else None,
        transformer_impl=grid.transformer_impl,
        data_parallel_size=1,
        world_size=grid.tp * grid.pp,
        expert_model_parallel_size=1,
        num_experts=None,
        use_distributed_optimizer=False,
        ckpt_format="torch",
        consumed_train_samples=consumed_samples,
        consumed_valid_samples=0,
        skipped_train_samples=0,
        tokenizer_type=None,
    )
    return argparse.Namespace(**values)


def counters(content: dict[str, Any], num_updates: int) -> dict[str, Any]:
    """The counters of a run that goes on from the checkpoint."""
    consumed = getattr(content["args"], "consumed_train_samples", 0)
    optimizer = content.get("optimizer")
    scaler = optimizer.get("grad_scaler", {}) if isinstance(optimizer, dict) else {}
    names = {"scale": "scale", "growth_tracker": "finite_steps", "hysteresis_tracker": "tolerance"}
    return {
        "iteration": int(content.get("iteration", 0)),
        "consumed_samples": consumed,
        "updated_samples": consumed - getattr(content["args"], "skipped_train_samples", 0),
        "num_updates": num_updates,
        "loss_scaler": {ours: float(scaler[theirs]) for theirs, ours in names.items() if theirs in scaler},
    }
