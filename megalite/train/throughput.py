"""Model FLOPs of a training step, and what they say about speed: TFLOP/s per GPU, tokens/s, MFU.

Counted are the matrix products that the mathematics of one forward and one backward pass needs, a multiply-add as two
operations, the backward pass as twice the forward. Per sample of s tokens, with hidden size h, L layers, q = heads x
head dim, k = query groups x head dim, feed-forward size f and vocabulary V, the forward pass has

    attention projections   2 s L h (2 q + 2 k)          q, k, v and output
    attention core          2 s^2 L q                    scores and weighted sum: 4 s^2 L q, halved for causality
    feed-forward            2 s L h f c                  c = 3 when gated (SwiGLU), else 2
    logits                  2 s h V                      tied to the embedding or not

This is the convention of Megatron-LM since 2025; its figures up to core 0.9, and Narayanan et al. (2021), count the
whole s x s attention, and the latter recomputation too, so they are larger. Not counted here: recomputation (so the
ratio to the peak is MFU, not HFU), the padding of the vocabulary (so the figure is the same at every layout; Megatron
counts it), embeddings, norms and other element-wise work. Document-aware attention counts as if it were causal over
the whole sequence.
"""

import re
from dataclasses import dataclass

from megalite.config import ModelConfig

# Published dense bf16 figures in TFLOP/s (fp16 where a device has no bf16 matrix units). The first name that occurs in
# the device's name as whole words counts, hence the variants before their families.
PEAK_TFLOPS = (
    ("GB300", 2500.0),
    ("B300", 2250.0),
    ("GB200", 2500.0),
    ("B200", 2250.0),
    ("H200 NVL", 835.5),
    ("H200", 989.4),
    ("GH200", 989.4),
    ("H100 NVL", 835.5),
    ("H100 PCIe", 756.5),
    ("H100", 989.4),
    ("H800 PCIe", 756.5),
    ("H800", 989.4),
    ("H20", 148.0),
    ("A100", 312.0),
    ("A800", 312.0),
    ("A40", 149.7),
    ("A30", 165.0),
    ("A10", 125.0),
    ("L40S", 362.0),
    ("L40", 181.0),
    ("L4", 121.0),
    ("V100-PCIE", 112.0),
    ("V100", 125.0),
    ("T4", 65.0),
    ("MI355X", 2500.0),
    ("MI325X", 1307.4),
    ("MI300X", 1307.4),
    ("MI250X", 191.5),  # one of its two dies, which is what PyTorch calls a device
)


def peak_tflops(device_name: str) -> float | None:
    """Dense bf16 peak of the device with this name, in TFLOP/s; None where it is not known (CPUs, slices of a GPU)."""
    if re.search(r"\bMIG\b", device_name):
        return None
    for name, peak in PEAK_TFLOPS:
        if re.search(rf"\b{name}\b", device_name):
            return peak
    return None


def model_flops(model: ModelConfig, num_samples: int) -> int:
    """FLOPs of one forward and backward pass over ``num_samples`` sequences, by the formula at the top of this file."""
    tokens, heads_width = model.seq_length, model.num_attention_heads * model.head_dim
    groups_width = model.query_groups * model.head_dim
    projections = model.hidden_size * (2 * heads_width + 2 * groups_width)
    feed_forward = model.hidden_size * model.ffn_size * (3 if model.activation == "swiglu" else 2)
    logits = model.hidden_size * model.vocab_size
    linear = 2 * tokens * (model.num_layers * (projections + feed_forward) + logits)
    attention_core = 2 * tokens**2 * model.num_layers * heads_width
    return 3 * num_samples * (linear + attention_core)


@dataclass(frozen=True)
class Throughput:
    """Speed over some steps. Tokens are all those processed (samples x sequence length), masked ones too."""

    tokens_per_second: float
    tokens_per_second_per_gpu: float
    tflops_per_gpu: float
    mfu: float | None


@dataclass(frozen=True)
class Speedometer:
    """Turns samples and seconds into a :class:`Throughput`, for one model on ``world_size`` devices of a known peak.

    A "GPU" is one rank; ``peak`` is in TFLOP/s per device, and MFU (a fraction) is None without it.
    """

    model: ModelConfig
    world_size: int
    peak: float | None = None

    def measure(self, num_samples: int, seconds: float) -> Throughput:
        """Throughput of ``num_samples`` sequences trained on in ``seconds`` by the whole world."""
        tokens_per_second = num_samples * self.model.seq_length / seconds
        tflops_per_gpu = model_flops(self.model, num_samples) / (seconds * 1e12 * self.world_size)
        return Throughput(
            tokens_per_second=tokens_per_second,
            tokens_per_second_per_gpu=tokens_per_second / self.world_size,
            tflops_per_gpu=tflops_per_gpu,
            mfu=None if self.peak is None else tflops_per_gpu / self.peak,
        )
