# %% [markdown]
# # A CSV file, and a plan for the budget
# A table of past tasks says what the model and the reviewer got right, and how long she took. How much time is worth
# spending? The file is written here; put the path and the columns of yours in its place.

# %%
import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import deferkit

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
with (folder / "claims.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["score", "channel", "model right", "reviewer right", "minutes"])
    for _ in range(400):
        score, channel = rng.uniform(0.5, 1.0), rng.choice(["mail", "phone", "web"])
        model = rng.random() < score - 0.2 * (channel == "phone")
        writer.writerow(
            [f"{score:.3f}", channel, int(model), int(rng.random() < 0.95), f"{rng.lognormal(0.5, 0.4):.1f}"]
        )

# %%
columns: dict[str, Any] = {
    "context": "score,channel",
    "model_reward": "model right",
    "human_reward": "reviewer right",
    "cost": "minutes",
}
found = deferkit.compare(folder / "claims.csv", budget="15%", trials=2, **columns)
print(found)

# %%
planned = deferkit.plan(folder / "claims.csv", policy="greedy", trials=2, unit="minutes", **columns)
print(planned.headline)
print("page:", planned.save(folder / "plan.html"))
