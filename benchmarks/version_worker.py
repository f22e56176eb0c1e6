"""Times whichever version of deferkit its Python has, one round a line of its input; versions.py starts two of them.

A line is a list in JSON: what is timed (a pacing of bulk.py, or a contender of single.py), then the size.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import json
import sys

from bulk import PACINGS, Size, draw_size, learner_round
from measure import Round
from single import CONTENDERS, draw_stream, round_of


def make_round(name: str, size: Size) -> Round:
    """Return what times a pacing, or a contender of single.py."""
    if name in PACINGS:
        return learner_round(name, draw_size(size), size.link)
    (contender,) = (each for each in CONTENDERS if each.name == name)
    return round_of(contender, draw_stream(size.n_tasks), size.n_tasks)


def main() -> None:
    for line in sys.stdin:
        name, *size = json.loads(line)
        print(make_round(name, Size(*size))(), flush=True)


if __name__ == "__main__":
    main()
