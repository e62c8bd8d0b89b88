"""config.json as the families read it: every field is understood, known not to matter, or refused by name."""

import re
from typing import Any

from megalite.errors import CheckpointError

_MISSING = object()

# What no family needs: it does not change the function from token ids to logits.
_NEUTRAL = re.compile(
    r"model_type|architectures|torch_dtype|dtype|transformers_version|transformers\.js_config|_\w*name_or_path|"
    r"_commit_hash|_attn_implementation\w*|attn_implementation|_flash_attn\w*|name_or_path|use_cache|"
    r"gradient_checkpointing|initializer_range|init_std|pretraining_tp|(bos|eos|pad|sep|unk|cls|mask|decoder_start|"
    r"image|prefix)_token_id|is_llama_config|is_encoder_decoder|is_decoder|cross_attention_hidden_size|bad_words_ids|"
    r"begin_suppress_tokens|chunk_size_feed_forward|diversity_penalty|do_sample|early_stopping|"
    r"encoder_no_repeat_ngram_size|exponential_decay_length_penalty|finetuning_task|forced_(bos|eos)_token_id|id2label|"
    r"label2id|num_labels|length_penalty|max_length|min_length|no_repeat_ngram_size|num_beam_groups|num_beams|"
    r"num_return_sequences|output_attentions|output_hidden_states|output_scores|problem_type|remove_invalid_values|"
    r"repetition_penalty|return_dict\w*|suppress_tokens|task_specific_params|temperature|tf_legacy_loss|"
    r"tie_encoder_decoder|tokenizer_class|top_k|top_p|torchscript|typical_p|use_bfloat16|unsloth_\w+|model_name"
)


class Fields:
    """The fields of a config.json. Each is taken at most once; :meth:`finish` refuses what nobody took."""

    def __init__(self, content: dict[str, Any], where: str):
        self._rest = {name: value for name, value in content.items() if not _NEUTRAL.fullmatch(name)}
        self.model_type: str = content["model_type"]
        self._where = where

    def take(self, name: str, default: Any = _MISSING) -> Any:
        """The value of a field; of one that is missing or null, the default, if there is one."""
        value = self._rest.pop(name, None)
        if value is not None:
            return value
        if default is _MISSING:
            raise CheckpointError(f"{self._where} must have the field {name}: it does not.")
        return default

    def require(self, name: str, *allowed: Any) -> None:
        """Refuse the field unless it is missing or one of the values that the model can be built with."""
        value = self.take(name, allowed[0])
        if value not in allowed:
            choices = " or ".join(map(repr, allowed))
            raise CheckpointError(
                f"{self._where}: {name} must be {choices} for megalite to compute the same function; it is {value!r}."
            )

    def peek(self, name: str, default: Any) -> Any:
        """The value of a field that is taken elsewhere."""
        value = self._rest.get(name)
        return default if value is None else value

    def finish(self) -> None:
        """Refuse the fields that are left. One that says null or false asks for nothing."""
        unknown = {name: value for name, value in self._rest.items() if value not in (None, False, [], {})}
        if unknown:
            shown = ", ".join(f"{name} ({str(value)[:60]})" for name, value in sorted(unknown.items()))
            raise CheckpointError(
                f"{self._where} has fields that megalite does not know for model_type {self.model_type}: {shown}. The "
                "model may compute something else because of them; remove those that do not matter from the file."
            )


def activation(fields: Fields, name: str, default: str) -> dict[str, bool]:
    """The settings for the activation that the field ``name`` calls for."""
    value = fields.take(name, default)
    known = {"gelu_new": {}, "gelu_pytorch_tanh": {}, "gelu_fast": {}, "relu": {"relu": True}}
    if value not in known:
        raise CheckpointError(
            f"{name} must be one of {', '.join(known)} for megalite to compute the same function; it is {value!r}."
        )
    return known[value]


def unlike(model: Any, **wanted: Any) -> list[str]:
    """The settings of a model that differ from what a family fixes, in words."""
    found = {name: getattr(model, name) for name in wanted}
    return [f"{name} is {found[name]}, not {wanted[name]}" for name in wanted if found[name] != wanted[name]]
