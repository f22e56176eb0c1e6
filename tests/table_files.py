"""Small tables that tests write."""

from pathlib import Path
from typing import Any

import numpy as np

from deferkit.worlds.base import TaskStream
from deferkit.worlds.table import Table

HEAD = "x_size,x_kind,model_reward,human_reward,cost\n"


ROWS = "3,a,1,1,2\n9,b,0,1,4\n5,a,1,0,3\n"


def written(folder: Path, text: str, name: str = "tasks.csv") -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def stream_of(folder: Path, text: str, **given: Any) -> TaskStream:
    return Table(path=written(folder, text), order="file", **given).draw(0)


def many(folder: Path, n: int = 400, *, lost: int = 0, seed: int = 0, name: str = "tasks.csv") -> str:
    """Write tasks in which the human is better at kind b; of the first `lost` ones nobody was asked."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["a", "b"], n)
    model = (rng.random(n) < np.where(kind == "a", 0.9, 0.3)).astype(int)
    human = (rng.random(n) < 0.8).astype(int).astype(object)
    cost = (0.01 * (1 + rng.random(n))).round(5).astype(object)
    human[:lost], cost[:lost] = "", ""
    size = rng.standard_normal(n).round(3)
    rows = zip(size, kind, model, human, cost, strict=True)
    return written(folder, HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows), name)
