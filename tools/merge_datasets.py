"""Append corpora (.bin/.idx) to one another. See ``--help`` and docs/preprocessing.md."""

from megalite.data.merge import main
from megalite.log import run_main

if __name__ == "__main__":
    run_main(main)
