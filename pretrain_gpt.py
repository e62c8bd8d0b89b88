"""Pretrain a GPT: ``python pretrain_gpt.py ...`` for one process, ``torchrun ... pretrain_gpt.py ...`` for many.

``--help`` lists the flags; they are Megatron-LM's.
"""

import sys

from megalite.log import run_main
from megalite.train.pretrain import pretrain

if __name__ == "__main__":
    run_main(lambda: pretrain(sys.argv[1:]))
