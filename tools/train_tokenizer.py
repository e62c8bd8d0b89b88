"""Train a tokenizer on a corpus: byte-level BPE, Unigram or WordPiece. See ``--help`` and docs/preprocessing.md."""

from megalite.data.tokenizer_training.run import main
from megalite.log import run_main

if __name__ == "__main__":
    run_main(main)
