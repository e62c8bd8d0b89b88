"""Data-parallel step time and memory of two processes over gloo: our strategies beside PyTorch's.

megalite replicated and ZeRO-1, against DistributedDataParallel with ZeroRedundancyOptimizer and FSDP2 (fully_shard) on
the same GPT, one thread a rank.

    python -m benchmarks.data_parallel --rounds 10
"""

import argparse
import functools
from typing import Callable

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from benchmarks.paired import race, table
from benchmarks.plain_torch import PlainConfig, PlainGPT
from benchmarks.train_step import MICRO_BATCH, our_config, random_batch
from megalite.log import echo, progress, run_main
from megalite.optim.scaler import make_scaler
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from megalite.train.engine import build_engine
from megalite.train.step import train_step

HYPER = {"lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}


def _step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, config: PlainConfig, rank: int
) -> Callable[[], float]:
    batch = random_batch(config, seed=rank)

    def step() -> float:
        loss = model(batch["tokens"], batch["labels"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def torch_zero(config: PlainConfig, rank: int, world_size: int) -> Callable[[], float]:
    """DistributedDataParallel, and optimizer state sharded by ZeroRedundancyOptimizer."""
    torch.manual_seed(0)
    model = DistributedDataParallel(PlainGPT(config), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, fused=True, **HYPER)
    return _step(model, optimizer, config, rank)


def torch_fsdp(config: PlainConfig, rank: int, world_size: int) -> Callable[[], float]:
    """FSDP2: every block and the rest fully sharded."""
    torch.manual_seed(0)
    model, mesh = PlainGPT(config), init_device_mesh("cpu", (world_size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _step(model, torch.optim.AdamW(model.parameters(), fused=True, **HYPER), config, rank)


def ours(config: PlainConfig, zero: bool, rank: int, world_size: int) -> Callable[[], float]:
    """megalite with the replicated strategy, or ZeRO-1 with both overlaps."""
    run = our_config(config, bf16=False).replace(
        global_batch_size=MICRO_BATCH * world_size, use_distributed_optimizer=zero, overlap_param_gather=zero
    )
    run = run.replace(ddp_bucket_size=2_000_000)
    engine = build_engine(run, ParallelContext(Mesh(dp=world_size), rank, torch.device("cpu")))
    scaler, batch = make_scaler(run.training), random_batch(config, seed=rank)
    return lambda: train_step(engine, scaler, [batch], lr=3e-4, weight_decay=0.1).loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seq-length", type=int, default=512)
    parser.add_argument("--vocab-size", type=int, default=8192)
    args = parser.parse_args()
    config = PlainConfig(num_layers=args.layers, seq_length=args.seq_length, vocab_size=args.vocab_size)
    contestants = {
        "megalite ZeRO-1": functools.partial(ours, config, True),
        "megalite replicated": functools.partial(ours, config, False),
        "DDP + ZeroRedundancyOptimizer": functools.partial(torch_zero, config),
        "FSDP2": functools.partial(torch_fsdp, config),
    }
    results = race(contestants, args.rounds, threads=1, world_size=2)
    echo(f"gpt2, fp32, {args.layers} x {config.hidden_size}, 2 processes x 1 thread, {args.rounds} rounds")
    echo(table(results, "megalite replicated", "tokens", 2 * MICRO_BATCH * config.seq_length))
    progress("last losses: " + ", ".join(f"{name} {result.last_value:.4f}" for name, result in results.items()))


if __name__ == "__main__":
    run_main(main)
