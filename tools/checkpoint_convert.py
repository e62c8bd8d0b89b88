"""Convert a checkpoint between megalite, Hugging Face and Megatron-LM. See ``--help`` and docs/conversion.md.

Example: python tools/checkpoint_convert.py --load-dir runs/a --save-dir hf --save-format huggingface --drop-optimizer
"""

from megalite.convert.command import main
from megalite.log import run_main

if __name__ == "__main__":
    run_main(main)
