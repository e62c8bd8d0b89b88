"""One GPU: what each kernel reaches of the bandwidth of a copy, and how fast a model trains.

GB/s count the fewest bytes that a forward and backward must read and write, beside those of a large copy and the time
of the same function in eager PyTorch, all on the device. Then pretrain_gpt.py trains a Llama-style model in bf16 on
random tokens, with the kernels and without: tokens/s, TFLOP/s, and the share of the device's published peak (MFU).

    python benchmarks/gpu.py --dtype bfloat16 --layers 16 --hidden 2048
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Sequence

import torch
from tests.cuda.cases import CASES, Case

from megalite import native
from megalite.data.indexed_builder import IndexedDatasetBuilder
from megalite.errors import ConfigError
from megalite.log import echo, progress, run_main
from megalite.ops import philox
from megalite.ops.adamw import AdamW, adamw_, reference_adamw_
from megalite.ops.norm import reference_sum_of_squares, sum_of_squares
from megalite.state import Box

ROOT = Path(__file__).parent.parent
PASSES = {
    "layer_norm": 5,
    "rms_norm": 5,
    "add_layer_norm": 8,
    "add_rms_norm": 8,
    "gelu": 5,
    "bias_gelu": 5,
    "squared_relu": 5,
    "swiglu": 8,
    "bias_swiglu": 8,
    "masked_softmax": 5,
    "causal_softmax": 3.5,
    "dropout": 5,
    "dropout_only": 4,
    "bias_residual": 5,
}
"""Elements that forward and backward read and write at least, in units of rows times columns."""
NUMBERS = AdamW(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, step=10, grad_factor=0.5)
VOCAB = 32_000

Turn = Callable[[], Any]


def milliseconds(turn: Turn, repeats: int = 20) -> float:
    """Median time of ``turn`` on the device, after a few turns to warm up."""
    times = []
    for number in range(repeats + 5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        turn()
        end.record()
        end.synchronize()
        if number >= 5:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def differentiate(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Turn:
    """A turn of ``function`` forward and backward."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    grads = [torch.randn_like(y) for y in ([outputs] if isinstance(outputs, torch.Tensor) else outputs)]
    return lambda: torch.autograd.grad(function(*leaves), leaves, grads)


def op_turns(case: Case, rows: int, cols: int, dtype: torch.dtype, device: str) -> tuple[Turn, Turn]:
    """Our version and the plain one of an op."""
    inputs = [torch.randn(shape, dtype=dtype, device=device) for shape in case.shapes(rows, cols)]
    return differentiate(case.op, inputs), differentiate(case.plain, inputs)


def flat_turns(size: int, device: str) -> dict[str, tuple[Turn, Turn, float]]:
    """(Our version, plain version, bytes) of what runs over flat float32 tensors."""
    tensors = [torch.rand(size, device=device) for _ in range(4)]
    param, grad, moments, copy = tensors[0], tensors[1], (tensors[2], tensors[3]), tensors[0].bfloat16()

    def plain_adamw() -> None:
        reference_adamw_(param, grad, moments, NUMBERS)
        copy.copy_(param)

    whole = Box.whole((size,))
    return {
        "adamw": (lambda: adamw_(param, grad, moments, NUMBERS, copy), plain_adamw, 30 * size),
        "sum_of_squares": (lambda: sum_of_squares(param), lambda: reference_sum_of_squares(param), 4 * size),
        "normal_fill": (
            lambda: philox.normal_box(1, "benchmark", (size,), whole, 0.02, torch.float32, device),
            lambda: torch.randn(size, device=device).mul_(0.02),
            4 * size,
        ),
    }


def line(name: str, ours: float, plain: float, num_bytes: float, copy_rate: float) -> str:
    rate = num_bytes / ours * 1e3
    return f"| {name} | {ours:.3f} | {plain:.3f} | {plain / ours:.2f} | {rate / 1e9:.0f} | {rate / copy_rate:.0%} |"


def bandwidth(rows: int, cols: int, dtype: torch.dtype) -> None:
    """The table of all kernels."""
    source = torch.randn(1 << 30, dtype=torch.bfloat16, device="cuda")
    target = torch.empty_like(source)
    copy_rate = 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) * 1e3
    del source, target
    echo(f"{torch.cuda.get_device_name()}: a copy moves {copy_rate / 1e9:.0f} GB/s; {native.cuda_reason()}")
    echo(f"| {rows} x {cols}, {dtype} | ms | eager ms | speed against eager | GB/s | of the copy |")
    echo("|---|---|---|---|---|---|")
    for name, passes in PASSES.items():
        ours, plain = map(milliseconds, op_turns(CASES[name], rows, cols, dtype, "cuda"))
        echo(line(name, ours, plain, passes * rows * cols * dtype.itemsize, copy_rate))
    for name, (ours, plain, num_bytes) in flat_turns(rows * cols, "cuda").items():
        echo(line(name, milliseconds(ours), milliseconds(plain), num_bytes, copy_rate))


def write_corpus(directory: Path, num_tokens: int = 4_000_000) -> Path:
    """Random tokens as a corpus."""
    tokens = torch.randint(VOCAB, (num_tokens // 1000, 1000), generator=torch.Generator().manual_seed(0))
    prefix = directory / "random"
    with IndexedDatasetBuilder(prefix, "uint16") as builder:
        for document in tokens.tolist():
            builder.add_document(document, [len(document)])
        builder.finalize(None)
    return prefix


def training_command(prefix: Path, metrics: Path, args: argparse.Namespace) -> list[str]:
    """pretrain_gpt.py with a Llama-style model in bf16."""
    flags = f"""
        --num-layers {args.layers} --hidden-size {args.hidden} --num-attention-heads {args.hidden // 128}
        --seq-length {args.seq_length} --micro-batch-size {args.micro_batch_size}
        --global-batch-size {2 * args.micro_batch_size} --train-iters {args.train_iters} --lr 1e-4 --bf16
        --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
        --untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0
        --tokenizer-type NullTokenizer --vocab-size {VOCAB} --split 100,0,0 --eval-iters 0 --log-interval 5
    """.split()
    return [
        *(sys.executable, str(ROOT / "pretrain_gpt.py"), *flags),
        *("--data-path", str(prefix), "--metrics-file", str(metrics)),
    ]


def train(args: argparse.Namespace, **environment: str) -> dict[str, Any]:
    """What the last log line of a run reports."""
    with tempfile.TemporaryDirectory(prefix="megalite-gpu-") as scratch:
        metrics = Path(scratch) / "metrics.jsonl"
        command = training_command(write_corpus(Path(scratch)), metrics, args)
        subprocess.run(command, check=True, env={**os.environ, **environment}, stdout=sys.stderr)
        records = [json.loads(text) for text in metrics.read_text().splitlines()]
    return [record for record in records if record["event"] == "train"][-1]


def training_table(args: argparse.Namespace) -> None:
    runs = {"with the kernels": {}, "plain PyTorch ops": {"MEGALITE_CUDA": "0"}}
    echo("| training, bf16 | tokens/s | TFLOP/s | MFU | memory (GiB) | loss |\n|---|---|---|---|---|---|")
    for name, environment in runs.items():
        progress(f"training {name}")
        last = train(args, **environment)
        mfu = "-" if last["mfu"] is None else f"{last['mfu']:.1%}"
        speed = f"{last['tokens_per_second']:,.0f} | {last['tflops_per_gpu']:.0f} | {mfu}"
        echo(f"| {name} | {speed} | {last['memory_bytes'] / 2**30:.1f} | {last['loss']:.3f} |")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="bfloat16")
    options.add_argument("--rows", type=int, default=16_384)
    options.add_argument("--cols", type=int, default=4096)
    options.add_argument("--layers", type=int, default=16)
    options.add_argument("--hidden", type=int, default=2048)
    options.add_argument("--seq-length", type=int, default=2048)
    options.add_argument("--micro-batch-size", type=int, default=4)
    options.add_argument("--train-iters", type=int, default=20)
    return options


def main() -> None:
    args = parser().parse_args()
    if not torch.cuda.is_available():
        raise ConfigError("this benchmark needs a CUDA device; PyTorch finds none: run it on a machine with a GPU.")
    bandwidth(args.rows, args.cols, getattr(torch, args.dtype))
    training_table(args)


if __name__ == "__main__":
    run_main(main)
