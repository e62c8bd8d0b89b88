"""``tools/checkpoint_convert.py``: any checkpoint that megalite can read, written in any format that it can write."""

import argparse
import re
from pathlib import Path
from typing import Sequence

from megalite import plugins
from megalite.checkpoint.piece import STATE_PREFIX
from megalite.convert import formats
from megalite.convert.conversion import convert
from megalite.convert.formats import load_format, open_checkpoint
from megalite.convert.options import ReadOptions, WriteOptions
from megalite.convert.source import Recast, Source, WithoutOptimizer
from megalite.convert.verify import verify
from megalite.errors import ConfigError
from megalite.log import echo, setup_logging

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_DTYPES = ("float32", "bfloat16", "float16", "float64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Body of the tool; ``arguments`` default to the command line."""
    setup_logging()
    given = _parser().parse_args(arguments)
    target = load_format(given.save_format, "--save-format")
    if not hasattr(target, "write"):
        raise ConfigError(f"--save-format must be a format that can be written; {given.save_format} is only read.")
    options = WriteOptions(
        tensor_parallel_size=given.target_tensor_parallel_size,
        pipeline_parallel_size=given.target_pipeline_parallel_size,
        virtual_stages=given.target_virtual_stages,
        pipeline_layout=given.target_pipeline_layout,
        distributed_optimizer=given.target_distributed_optimizer,
        transformer_impl=given.target_transformer_impl,
        max_shard_bytes=parse_size(given.max_shard_size),
    )
    reading = ReadOptions(given.ckpt_step, not given.drop_optimizer, given.true_vocab_size)
    original = open_checkpoint(given.load_dir, given.load_format, reading)
    # Main parameters are part of the optimizer's state: the last chance to take their exact values is before it goes.
    source = original if given.dtype is None else Recast(original, given.dtype)
    source = WithoutOptimizer(source) if given.drop_optimizer else source
    echo(_summary(source))
    convert(source, given.save_dir, target, options)
    echo(f"written to {given.save_dir} ({given.save_format})")
    if given.verify:
        written = target.open_source(given.save_dir, ReadOptions())
        verify(original, written, same_dtype=given.dtype is None)
    return 0


def _parser() -> argparse.ArgumentParser:
    names = plugins.available(formats.__name__)
    parser = argparse.ArgumentParser(
        description="Convert a checkpoint. Needs no GPU, and memory for little more than a tensor."
    )
    parser.add_argument(
        "--load-dir", type=Path, required=True, help="what to read: a --save directory, one checkpoint, a model"
    )
    parser.add_argument("--save-dir", type=Path, required=True, help="what to write; must not exist, or be empty")
    parser.add_argument("--load-format", metavar="NAME", help=f"one of {', '.join(names)}; default: what is found")
    parser.add_argument("--save-format", metavar="NAME", required=True, help=f"one of {', '.join(names)}")
    parser.add_argument("--ckpt-step", type=int, help="the checkpoint of this step instead of the newest")
    parser.add_argument("--dtype", choices=_DTYPES, help="of the written parameters; default: as they are")
    parser.add_argument("--drop-optimizer", action="store_true", help="write the parameters alone")
    vocabulary = "size of the vocabulary without padding, for checkpoints of Megatron-LM that do not tell it"
    parser.add_argument("--true-vocab-size", type=int, metavar="N", help=vocabulary)
    parser.add_argument("--max-shard-size", default="5GB", help="largest file of a Hugging Face directory, as in 500MB")
    parser.add_argument("--target-tensor-parallel-size", type=int, default=1, metavar="N", help="for Megatron-LM")
    parser.add_argument("--target-pipeline-parallel-size", type=int, default=1, metavar="N", help="for Megatron-LM")
    parser.add_argument("--target-virtual-stages", type=int, default=1, metavar="N", help="per rank, for Megatron-LM")
    layout = "what each virtual stage holds, as in 'Ett|ttt|tL', for Megatron-LM; default: an even split"
    parser.add_argument("--target-pipeline-layout", metavar="LAYOUT", help=layout)
    distributed = "write Adam's state in the file of Megatron-LM's distributed optimizer"
    parser.add_argument("--target-distributed-optimizer", action="store_true", help=distributed)
    kinds = ("transformer_engine", "local")
    parser.add_argument(
        "--target-transformer-impl", choices=kinds, default=kinds[0], help="names of layers, for Megatron-LM"
    )
    parser.add_argument(
        "--verify", action="store_true", help="then compare the logits of both checkpoints on real tokens"
    )
    return parser


def parse_size(text: str) -> int:
    """Bytes of a size such as ``500MB`` or ``2GiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?B)?", text.strip(), re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[(match[2] or "").upper()]) if match else 0
    if size < 1:
        raise ConfigError(f"--max-shard-size must be a size such as 500MB or 5GB; given {text!r}.")
    return size


def _summary(source: Source) -> str:
    names = source.names()
    state = sum(name.startswith(STATE_PREFIX) for name in names)
    parts = f"{len(names) - state} parameters and {state} tensors of optimizer state"
    return f"{source.directory}: iteration {source.meta['iteration']}, {parts}"
