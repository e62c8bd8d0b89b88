"""One training step in one process: megalite beside the same model in plain PyTorch, eager and compiled.

12 layers x 256, sequence 512, micro-batch 4, vocabulary 8192; fused AdamW, clipping 1.0, no dropout; random tokens.

    python -m benchmarks.train_step --style gpt2 --rounds 10
"""

import argparse
import functools
from typing import Callable

import torch
from torch import nn

from benchmarks.paired import race, table
from benchmarks.plain_torch import PlainConfig, PlainGPT, PlainTrainer
from benchmarks.transformers_models import TransformersGPT, load_transformers
from megalite.config import Config, ModelConfig
from megalite.log import echo, progress, run_main
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.train.engine import build_engine
from megalite.train.step import train_step

MICRO_BATCH = 4
STYLES = {
    "gpt2": {},
    "llama": {
        "position_embedding_type": "rope",
        "normalization": "RMSNorm",
        "swiglu": True,
        "disable_bias_linear": True,
        "untie_embeddings_and_output_weights": True,
    },
}


def random_batch(config: PlainConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """A micro-batch of random tokens, with every field that a model may read."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(config.vocab_size, (MICRO_BATCH, config.seq_length + 1), generator=generator)
    return {
        "tokens": text[:, :-1].contiguous(),
        "labels": text[:, 1:].contiguous(),
        "loss_mask": torch.ones(MICRO_BATCH, config.seq_length),
        "position_ids": torch.arange(config.seq_length).repeat(MICRO_BATCH, 1),
        "sample_ids": torch.arange(MICRO_BATCH),
    }


def our_config(config: PlainConfig, bf16: bool) -> Config:
    """The run that equals the plain trainer's."""
    model = ModelConfig(
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_heads,
        seq_length=config.seq_length,
    )
    return Config(model=model).replace(
        vocab_size=config.vocab_size,
        micro_batch_size=MICRO_BATCH,
        global_batch_size=MICRO_BATCH,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        train_iters=1000,
        lr=3e-4,
        adam_beta2=0.95,
        weight_decay=0.1,
        bf16=bf16,
        **STYLES[config.style],
    )


def plain(
    model: Callable[[PlainConfig], nn.Module],
    config: PlainConfig,
    bf16: bool,
    compiled: bool,
    rank: int,
    world_size: int,
) -> Callable[[], float]:
    """A step of plain PyTorch, of its own model or that of a library."""
    torch.manual_seed(0)
    trainer, batch = PlainTrainer(model(config), bf16, compiled), random_batch(config)
    return lambda: trainer.step(batch["tokens"], batch["labels"])


def ours(config: PlainConfig, bf16: bool, rank: int, world_size: int) -> Callable[[], float]:
    """A step of megalite on one rank."""
    run = our_config(config, bf16)
    engine = build_engine(run, ParallelContext.single())
    scaler, batch = make_scaler(run.training), random_batch(config)
    return lambda: train_step(engine, scaler, [batch], lr=3e-4, weight_decay=0.1).loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--style", choices=sorted(STYLES), default="gpt2")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true", help="also race torch.compile")
    parser.add_argument("--transformers", action="store_true", help="also race Hugging Face transformers")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seq-length", type=int, default=512)
    parser.add_argument("--vocab-size", type=int, default=8192)
    args = parser.parse_args()
    sizes = {"num_layers": args.layers, "seq_length": args.seq_length, "vocab_size": args.vocab_size}
    config = PlainConfig(style=args.style, **sizes)
    contestants = {"PyTorch eager": functools.partial(plain, PlainGPT, config, args.bf16, False)}
    if args.compile:
        contestants["PyTorch compiled"] = functools.partial(plain, PlainGPT, config, args.bf16, True)
    if args.transformers:
        load_transformers()
        contestants["transformers"] = functools.partial(plain, TransformersGPT, config, args.bf16, False)
    contestants["megalite"] = functools.partial(ours, config, args.bf16)
    results = race(contestants, args.rounds, threads=args.threads)
    precision = "bf16" if args.bf16 else "fp32"
    echo(
        f"{args.style}, {precision}, {args.layers} x {config.hidden_size}, {args.threads} threads, {args.rounds} rounds"
    )
    echo(table(results, "PyTorch eager", "tokens", MICRO_BATCH * config.seq_length))
    progress("last losses: " + ", ".join(f"{name} {result.last_value:.4f}" for name, result in results.items()))


if __name__ == "__main__":
    run_main(main)
