"""Build the index caches of a training run offline: give the flags of pretrain_gpt.py. Needs no GPU and no torchrun."""

import sys

from megalite.log import run_main
from megalite.train.prebuild import prebuild

if __name__ == "__main__":
    run_main(lambda: prebuild(sys.argv[1:]))
