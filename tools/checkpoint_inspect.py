"""List the tensors, counters and configuration of a checkpoint, or compare two checkpoints. See ``--help``.

Example: python tools/checkpoint_inspect.py runs/small --norms
"""

from megalite.checkpoint.inspect import main
from megalite.log import run_main

if __name__ == "__main__":
    run_main(main)
