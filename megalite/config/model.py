"""What the model is: the fields that decide which function is trained."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """model: the function that is trained"""

    model: str = "gpt"
    """Model family: a file of megalite/models/."""
    num_layers: int
    """Number of transformer layers."""
    hidden_size: int
    """Width of the residual stream."""
    ffn_hidden_size: int | None = None
    """Width inside the MLP. Default: 4 x hidden_size; with --swiglu two thirds of it, rounded down to a multiple of
    64."""
    num_attention_heads: int
    """Number of query heads."""
    group_query_attention: bool = False
    """Share each key and value head among several query heads; see --num-query-groups."""
    num_query_groups: int | None = None
    """Number of key and value heads under --group-query-attention. Default: 1 (multi-query attention)."""
    kv_channels: int | None = None
    """Width of one head. Default: hidden_size / num_attention_heads."""
    seq_length: int
    """Tokens in one training sample."""
    max_position_embeddings: int | None = None
    """Rows of the table of learned positions, the longest sequence the model can read. Default: seq_length."""
    position_embedding_type: Literal["learned_absolute", "rope", "none"] = "learned_absolute"
    """How positions enter: a learned table, rotation of queries and keys (rope), or not at all."""
    rotary_base: float = 10000.0
    """Base of the rotary angles (theta)."""
    rotary_percent: float = 1.0
    """Share of each head's channels that is rotated."""
    rotary_interleaved: bool = False
    """Rotate neighbouring channels (2i, 2i+1) as pairs instead of the two halves of the head."""
    rotary_seq_len_interpolation_factor: float | None = None
    """Divide positions by this factor before rotating (linear interpolation to longer sequences)."""
    use_rope_scaling: bool = False
    """Scale the low rotary frequencies as Llama 3.1 does."""
    rope_scaling_factor: float = 8.0
    """Factor of --use-rope-scaling."""
    normalization: Literal["LayerNorm", "RMSNorm"] = "LayerNorm"
    """Kind of every norm of the model."""
    norm_epsilon: float = 1e-5
    """Added to the variance (LayerNorm) or the mean square (RMSNorm)."""
    swiglu: bool = False
    """Gated MLP: silu(gate) x up. The default activation is GELU in its tanh form."""
    squared_relu: bool = False
    """MLP activation relu(x)^2."""
    relu: bool = False
    """MLP activation relu(x), as in OPT. (Not a flag of Megatron-LM.)"""
    disable_bias_linear: bool = False
    """No bias in any linear layer, except as --add-qkv-bias says."""
    add_qkv_bias: bool = False
    """Keep the bias of the query, key and value projection under --disable-bias-linear."""
    qk_layernorm: bool = False
    """Normalise queries and keys per head before attention."""
    untie_embeddings_and_output_weights: bool = False
    """Give the output layer a matrix of its own instead of the word embedding's."""
    make_vocab_size_divisible_by: int = 128
    """The vocabulary is padded in memory to a multiple of this x tensor_model_parallel_size. Padding is never stored,
    and never takes part in the loss."""
    vocab_size: int | None = None
    """Size of the vocabulary before padding. Default: the tokenizer's."""
    init_method_std: float = 0.02
    """Standard deviation of initial weights; projections back into the residual stream use it / sqrt(2 x
    num_layers)."""
    attention_dropout: float = 0.1
    """Probability of dropping an attention weight, in steps of 2^-16."""
    hidden_dropout: float = 0.1
    """Probability of dropping an element of the embedding's and of each sublayer's output, in steps of 2^-16."""
    attention_softmax_in_fp32: bool = False
    """Compute the softmax of the unfused attention core in float32 under --fp16 or --bf16. The fused core always
    does."""
    fp32_residual_connection: bool = False
    """Keep the residual stream, also between pipeline stages, in float32 under --fp16 or --bf16."""
    attention_backend: Literal["auto", "fused", "unfused"] = "auto"
    """Attention core: without a matrix of scores (fused; our own kernel on the CPU, PyTorch's on GPUs), by explicit
    products and softmax (unfused), or the fastest one that can do what is asked (auto). Attention dropout needs the
    unfused core."""
    label_smoothing: float = 0.0
    """Share of each target's probability that is spread evenly over the vocabulary. (Not a flag of Megatron-LM.)"""

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.kv_channels if self.kv_channels is not None else self.hidden_size // self.num_attention_heads

    @property
    def query_groups(self) -> int:
        """Number of key and value heads."""
        if not self.group_query_attention:
            return self.num_attention_heads
        return self.num_query_groups if self.num_query_groups is not None else 1

    @property
    def ffn_size(self) -> int:
        """Width inside the MLP (of each of the two halves under SwiGLU)."""
        if self.ffn_hidden_size is not None:
            return self.ffn_hidden_size
        return self.hidden_size * 8 // 3 // 64 * 64 if self.swiglu else 4 * self.hidden_size

    @property
    def num_positions(self) -> int:
        """Rows of the table of learned positions."""
        return self.max_position_embeddings if self.max_position_embeddings is not None else self.seq_length

    @property
    def activation(self) -> Literal["gelu", "swiglu", "squared_relu", "relu"]:
        """The MLP's activation. That at most one flag asks for another than GELU is a rule of
        :mod:`megalite.config.check`."""
        chosen = [name for name in ("swiglu", "squared_relu", "relu") if getattr(self, name)]
        return chosen[0] if chosen else "gelu"

    @property
    def tied(self) -> bool:
        """Whether the output layer uses the word embedding's matrix."""
        return not self.untie_embeddings_and_output_weights

    @property
    def linear_bias(self) -> bool:
        """Whether linear layers other than the query, key and value projection have a bias."""
        return not self.disable_bias_linear

    @property
    def qkv_bias(self) -> bool:
        """Whether the query, key and value projection has a bias."""
        return self.linear_bias or self.add_qkv_bias

    def padded_vocab_size(self, tensor_parallel_size: int) -> int:
        """The vocabulary rounded up to a multiple of make_vocab_size_divisible_by x ``tensor_parallel_size``."""
        assert self.vocab_size is not None, "vocab_size must be filled in from the tokenizer before the model is built"
        multiple = self.make_vocab_size_divisible_by * tensor_parallel_size
        return -(-self.vocab_size // multiple) * multiple
