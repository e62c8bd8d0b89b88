"""What a resumed run is told of settings that changed: which settings need it."""

from dataclasses import fields

from megalite.config import ModelConfig
from megalite.train import checkpointing

SEEN_IN_SHAPES = (
    "num_layers hidden_size ffn_hidden_size num_attention_heads group_query_attention num_query_groups kv_channels "
    "seq_length max_position_embeddings disable_bias_linear add_qkv_bias qk_layernorm "
    "untie_embeddings_and_output_weights make_vocab_size_divisible_by vocab_size"
).split()
"""A checkpoint of another one has other tensors, or serves any (lengths, and the vocabulary's padding)."""
SAME_FUNCTION = "model init_method_std attention_softmax_in_fp32 fp32_residual_connection attention_backend".split()
"""The family, of which there is one, and what changes the start or the rounding only."""


def test_a_setting_of_the_model_shows_in_its_tensors_or_is_mentioned():
    """A new one must be put into one of the lists: one that is in none would be changed in silence."""
    mentioned = {name for name in checkpointing._FUNCTION if name in {field.name for field in fields(ModelConfig)}}
    assert mentioned | {*SEEN_IN_SHAPES, *SAME_FUNCTION} == {field.name for field in fields(ModelConfig)}
    assert not mentioned & {*SEEN_IN_SHAPES, *SAME_FUNCTION}
