"""deferkit warm: compile everything."""

import time
from importlib.util import find_spec

import numpy as np

from deferkit.cli.app import app, console
from deferkit.learn.compiled import CACHE
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.embed.gradient import GradientEmbedding
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.trees import TreeEmbedding
from deferkit.learn.rehearsal import rehearse
from deferkit.types import Budget


def trees() -> list[TreeEmbedding]:
    """Return an embedding by trees, if what it needs is installed."""
    return [TreeEmbedding(first=8)] if find_spec("lightgbm") is not None else []


@app.command()
def warm() -> None:
    """Compile everything, so that later processes start from the cache."""
    begin = time.perf_counter()
    with console.status("compiling, up to two minutes on a new machine …"):
        rehearse()
        embeddings: list[Embedding] = [NeuralEmbedding(every=2), GradientEmbedding(every=2), *trees()]
        for embedding in embeddings:
            learner = Deferrer(n_features=2, budget=Budget(5, horizon=100, max_cost=1), embedding=embedding)
            learner.run(np.ones((40, 2)), {"model": np.ones(40), "human": np.zeros(40)}, np.full(40, 0.1))
    where = f"machine code in {CACHE}" if CACHE else "no cache directory can be written: each process compiles anew"
    console.print(f"compiled in {time.perf_counter() - begin:.1f} s, {where}")
