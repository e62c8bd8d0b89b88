"""Train a byte-level BPE tokenizer on a corpus. See ``--help``."""

from megalite.data.preprocess.train_bpe import main
from megalite.log import run_main

if __name__ == "__main__":
    run_main(main)
