"""Turn JSON lines into the .bin/.idx corpora that training reads. See ``--help`` and docs/data-format.md."""

from megalite.data.preprocess.run import main
from megalite.log import run_main

if __name__ == "__main__":
    run_main(main)
