"""How much of a gain hashed texts find: real texts of two topics, of which the model knows one.

    python benchmarks/texts.py [lengths]

The texts are docstrings: of modules on networks against others of the standard library, and of scipy against
scikit-learn. The model is right in 95 % of the first topic and 50 % of the second, the expert in 93 %, and a fifth of
all texts can be reviewed. Printed: right answers gained over the model alone, mean and standard error of three streams.
"""

import importlib
import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np

from deferkit import Budget, Deferrer, Encoder

TOPICS = {
    "network/other": (
        "socket ssl http.client http.server urllib.request asyncio smtplib ftplib imaplib selectors email.message"
        " xmlrpc.client",
        "decimal fractions statistics random datetime calendar collections heapq functools argparse logging"
        " configparser tarfile zipfile pathlib",
    ),
    "scipy/sklearn": (
        "scipy.stats scipy.optimize scipy.linalg scipy.signal scipy.sparse",
        "sklearn.linear_model sklearn.ensemble sklearn.cluster sklearn.svm sklearn.metrics sklearn.preprocessing",
    ),
}
MOST = 600  # texts of a topic
SEEDS = 3


def docstrings(modules: str) -> list[str]:
    """Return the beginnings of the docstrings of classes, methods and functions."""

    def found() -> Iterator[str | None]:
        for module in map(importlib.import_module, modules.split()):
            for thing in vars(module).values():
                yield thing.__doc__ if callable(thing) else None
                if isinstance(thing, type):
                    yield from (getattr(method, "__doc__", None) for method in vars(thing).values())

    return list(dict.fromkeys(text[:600] for text in found() if isinstance(text, str) and len(text) > 40))[:MOST]


def gain(texts: list[str], topic: list[int], kind: str, seed: int) -> float:
    """Return what a learner gains that knows nothing, the topic, or hashed texts of a length."""
    rng = np.random.default_rng(seed)
    order, n = rng.permutation(len(texts)), len(texts)
    model = (rng.random(n) < np.where(np.array(topic)[order], 0.5, 0.95)).astype(float)
    human = (rng.random(n) < 0.93).astype(float)
    values: list[float] | list[str]
    if kind == "nothing":
        encoder, values = Encoder(numbers=["x"]), [0.0] * n
    elif kind == "topic":
        encoder, values = Encoder(categories={"x": ["0", "1"]}), [str(topic[i]) for i in order]
    else:
        encoder, values = Encoder(texts={"x": int(kind)}), [texts[i] for i in order]
    learner = Deferrer(encoder=encoder, budget=Budget(0.2 * n, horizon=n, max_cost=1), seed=seed)
    run = learner.run([{"x": value} for value in values], {"model": model, "human": human}, cost=np.ones(n))
    return run.reward - float(model.sum())


def main() -> None:
    warnings.simplefilter("ignore")
    for name, modules in TOPICS.items():
        first, second = map(docstrings, modules)
        few = min(len(first), len(second))
        texts, topic = first[:few] + second[:few], [0] * few + [1] * few
        for kind in ("nothing", *(sys.argv[1:] or ("32", "64", "128")), "topic"):
            begin = time.perf_counter()
            gains = [gain(texts, topic, kind, seed) for seed in range(SEEDS)]
            us = (time.perf_counter() - begin) / (SEEDS * len(texts)) * 1e6
            error = np.std(gains, ddof=1) / SEEDS**0.5
            print(
                f"{name:14} {len(texts):,} texts, {kind:8} {np.mean(gains):6.1f} ± {error:.1f}  {us:,.0f} µs",
                flush=True,
            )


if __name__ == "__main__":
    main()
