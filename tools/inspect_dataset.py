"""Show statistics and documents of a corpus (.bin/.idx), and check it. See ``--help`` and docs/preprocessing.md."""

from megalite.data.inspect import main
from megalite.log import run_main

if __name__ == "__main__":
    run_main(main)
