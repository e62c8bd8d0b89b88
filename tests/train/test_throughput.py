import pytest
import torch
from torch.nn.functional import cross_entropy, embedding, gelu, silu
from torch.utils.flop_counter import FlopCounterMode

from megalite.config import ModelConfig
from megalite.train.throughput import Speedometer, model_flops, peak_tflops
from tests.train.samples import MODEL


def test_model_flops_worked_by_hand():
    # projections 2*4*2*8*(16+16) = 4096, core 2*16*2*8 = 512, feed-forward 2*4*2*8*32*2 = 8192, logits 2*4*8*10 = 640
    assert model_flops(MODEL, 1) == 3 * (4096 + 512 + 8192 + 640) == 40320


def test_model_flops_of_a_gated_model_with_query_groups_worked_by_hand():
    model = ModelConfig(
        num_layers=3, hidden_size=12, ffn_hidden_size=7, num_attention_heads=4, kv_channels=5, seq_length=6,
        vocab_size=11, group_query_attention=True, num_query_groups=2, swiglu=True,
        untie_embeddings_and_output_weights=True,
    )
    # q = 20, k = 10: projections 2*6*3*12*(40+20) = 25920, core 2*36*3*20 = 4320, feed-forward 2*6*3*12*7*3 = 9072,
    # logits 2*6*12*11 = 1584; five samples
    assert model_flops(model, 5) == 5 * 3 * (25920 + 4320 + 9072 + 1584) == 613440


def test_published_throughput_of_llama3_405b():
    # NVIDIA Megatron Bridge's table has 326 tokens/s/GPU beside 822 model TFLOP/s/GPU, both rounded.
    model = ModelConfig(
        num_layers=126, hidden_size=16384, ffn_hidden_size=53248, num_attention_heads=128, num_query_groups=8,
        group_query_attention=True, swiglu=True, seq_length=8192, vocab_size=128256,
    )
    speed = Speedometer(model, world_size=512).measure(num_samples=512, seconds=8192 / 326)
    assert speed.tokens_per_second_per_gpu == pytest.approx(326)
    assert speed.tflops_per_gpu == pytest.approx(822, rel=2e-3)


def _plain_loss(model: ModelConfig, num_samples: int) -> torch.Tensor:
    """The loss of a bare transformer whose queries attend, one by one, to just the keys they may see."""

    def weight(*shape):
        return torch.randn(shape).requires_grad_()

    heads, groups, width = model.num_attention_heads, model.query_groups, model.head_dim
    word = weight(model.vocab_size, model.hidden_size)
    head = word if model.tied else weight(model.vocab_size, model.hidden_size)
    hidden = embedding(torch.randint(model.vocab_size, (num_samples, model.seq_length)), word)
    for _ in range(model.num_layers):
        q, k, v = (
            (hidden @ weight(model.hidden_size, n * width)).unflatten(-1, (n, width)).transpose(1, 2)
            for n in (heads, groups, groups)
        )
        k, v = (x.repeat_interleave(heads // groups, dim=1) for x in (k, v))
        rows = []
        for i in range(model.seq_length):
            scores = q[:, :, i : i + 1] @ k[:, :, : i + 1].transpose(-1, -2)
            rows.append(scores.softmax(-1) @ v[:, :, : i + 1])
        attended = torch.cat(rows, dim=2).transpose(1, 2).flatten(2)
        hidden = hidden + attended @ weight(heads * width, model.hidden_size)
        up = hidden @ weight(model.hidden_size, model.ffn_size)
        up = silu(hidden @ weight(model.hidden_size, model.ffn_size)) * up if model.swiglu else gelu(up)
        hidden = hidden + up @ weight(model.ffn_size, model.hidden_size)
    logits = hidden @ head.T
    return cross_entropy(logits.flatten(0, 1), torch.zeros(logits.shape[:2], dtype=torch.int64).flatten())


@pytest.mark.parametrize("swiglu", (False, True))
@pytest.mark.parametrize("num_groups", (1, 2, 4))
@pytest.mark.parametrize("untied", (False, True))
def test_model_flops_agree_with_a_count_of_the_products_that_run(swiglu, num_groups, untied):
    model = ModelConfig(
        num_layers=2, hidden_size=32, ffn_hidden_size=96, num_attention_heads=4, kv_channels=12, seq_length=48,
        vocab_size=70, group_query_attention=num_groups < 4, num_query_groups=num_groups, swiglu=swiglu,
        untie_embeddings_and_output_weights=untied,
    )
    with FlopCounterMode(display=False) as counter:
        _plain_loss(model, 2).backward()
    # The diagonal makes the exact causal count s (s+1) / 2 where the formula has s^2 / 2.
    assert model_flops(model, 2) == pytest.approx(counter.get_total_flops(), rel=0.01)
    diagonal = 2 * 3 * model.num_layers * 2 * model.seq_length * model.num_attention_heads * model.head_dim
    assert model_flops(model, 2) + diagonal == counter.get_total_flops()


def test_throughput_worked_by_hand():
    # 2 samples of 4 tokens in 4 s on 2 devices; 80640 FLOPs over 4 s and 2 devices are 10080 FLOP/s a device.
    speed = Speedometer(MODEL, world_size=2, peak=4.032e-8).measure(num_samples=2, seconds=4.0)
    assert speed.tokens_per_second == 2.0
    assert speed.tokens_per_second_per_gpu == 1.0
    assert speed.tflops_per_gpu == pytest.approx(1.008e-8)
    assert speed.mfu == pytest.approx(0.25)


def test_mfu_is_unknown_without_a_peak():
    assert Speedometer(MODEL, world_size=1).measure(1, 1.0).mfu is None


@pytest.mark.parametrize(
    "device_name, peak",
    [
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A10", 125.0),
        ("NVIDIA A40", 149.7),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989.4),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA H20", 148.0),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA GB200", 2500.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA L4", 121.0),
        ("Tesla V100-SXM2-16GB", 125.0),
        ("Tesla V100-PCIE-32GB", 112.0),
        ("AMD Instinct MI300X", 1307.4),
        ("cpu", None),
        ("NVIDIA A10G", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_peak_of_a_device_by_name(device_name, peak):
    assert peak_tflops(device_name) == peak
