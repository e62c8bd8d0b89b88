"""Print the grid, bubble and memory of a pipeline schedule.

Example: python tools/show_schedule.py --schedule interleaved --pp 4 --virtual 2 --num-microbatches 8
"""

from megalite.log import run_main
from megalite.schedule.show import main

if __name__ == "__main__":
    run_main(main)
