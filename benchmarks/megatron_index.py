"""Megatron-core's GPT index builder on a corpus, as a process of its own: run by its own Python, prints JSON.

    python megatron_index.py PREFIX SEQ_LENGTH NUM_SAMPLES SEED CACHE_DIRECTORY
"""

import json
import sys
import time

import numpy as np
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split, compile_helpers


class NoTokenizer:
    """As much of a tokenizer as the data set asks for."""

    unique_identifiers = {"class": "NoTokenizer"}
    pad = pad_id = -1
    eod = eos_id = 0
    vocab_size = 65000


def resident(field: str) -> int:
    """Bytes of memory that this process holds (VmRSS) or held at most (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    prefix, seq_length, num_samples, seed, cache = sys.argv[1:]
    try:
        from megatron.core.datasets import helpers_cpp  # noqa: F401
    except ImportError:
        compile_helpers()
    config = GPTDatasetConfig(
        random_seed=int(seed),
        sequence_length=int(seq_length),
        split="1,0,0",
        path_to_cache=cache,
        tokenizer=NoTokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    before = resident("VmRSS")
    started = time.perf_counter()
    corpus = IndexedDataset(prefix)
    documents = np.arange(len(corpus), dtype=np.int32)
    dataset = GPTDataset(corpus, prefix, documents, int(num_samples), Split.train, config)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "bytes": resident("VmHWM") - before, "samples": len(dataset)}))


if __name__ == "__main__":
    main()
