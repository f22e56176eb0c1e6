"""State files of version 1, which held two flat buffers, converted to version 2."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

HEAD = 32  # length of the header of the int buffer; then come the offsets of the fields
N_FEATURES, N_EXPERTS, N_RESOURCES, MEMORY, OVERFLOW = range(5)
REWARD_LINK, COST_LINK, CAPACITY, STRIDE, N_VIEWS = 6, 7, 23, 26, 28
COUNTERS = {  # current name → index in the header of version 1
    "warm_up": 14,
    "next_id": 15,
    "price_due": 16,
    "n_forced": 18,
    "n_no_budget": 19,
    "n_expired": 20,
    "horizon_told": 21,
    "unsettled": 22,
    "n_seen": 29,
    "retrain_at": 30,
}
FIELDS = (  # name in version 1, buffer and shape, in the order of the offsets
    *("sees int G", "follows int K", "n_stashed int G", "drifted int G", "n_absorbed int G", "n_observed int G"),
    *("next_refit int G", "n_routed int A", "route int M", "status int M"),
    *("total float R", "horizon float R", "max_cost float R", "spent float R", "reserved float R", "overrun float R"),
    *("largest float R", "cost_sum float R", "cost_n float R", "owed float R", "log_up float R", "log_down float R"),
    *("price float R", "log_weight float R", "squares float R", "next_solve float 1"),
    *("inverse float G d d", "precision float G d d", "rounding float G d d", "stash float G S d"),
    *("theta float G d", "moment float G d", "power float 2", "misfit float G", "context float M V d"),
    *("held float M R", "reward float M A", "cost float M R"),
)
RENAMED = {
    "follows": "shares_design",
    "largest": "largest_cost",
    "power": "reward_power",
    "misfit": "squared_error",
}
DUAL = {  # fields of each pacing beside the price, and its constants, which version 1 kept in the state
    "resolve": (("next_solve",), ()),
    "adaptive": (("squares",), ()),
    "gradient": (("log_weight",), ("log_up", "log_down")),
    "paper": (("log_weight",), ("log_up", "log_down")),
}
STASH, LANES = 16, 4


def convert(settings: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of version 2."""
    ints, floats = arrays["ints"], arrays["floats"]
    head = ints[:HEAD].tolist()
    k, r, stride = head[N_EXPERTS], head[N_RESOURCES], head[STRIDE]
    letters = {"d": stride, "K": k, "R": r, "A": k + 1, "G": 1 + k + k * r, "S": STASH, "V": head[N_VIEWS]}
    letters["M"] = head[MEMORY] + head[OVERFLOW]
    found: Arrays = {}
    for field, offset in zip(FIELDS, ints[HEAD:].tolist(), strict=False):
        name, buffer, *dims = field.split()
        shape = tuple(letters[each] if each in letters else int(each) for each in dims)
        whole = (ints if buffer == "int" else floats)[offset : offset + math.prod(shape)].reshape(shape)
        features = slice(0, head[N_FEATURES])
        found[RENAMED.get(name, name)] = whole[tuple(features if each == "d" else slice(None) for each in dims)]
    pacing = settings["deferrer"]["pacing"]
    memory, constants = DUAL[pacing["kind"]]
    found["view"] = found.pop("sees") // stride
    found["past_width"] = np.zeros_like(found["reward"])  # not used by learners of version 1
    found["context_power"] = np.zeros(2)
    found["dual"] = np.concatenate([found["price"], *(found[name] for name in memory)])
    given = {"resolve": ("every",), "adaptive": ("step",)}.get(pacing["kind"], ())
    found["pacing_constant"] = np.concatenate(
        [np.array([float(pacing[name]) for name in given]), *(found[name] for name in constants)]
    )
    samples = arrays["samples"]
    if len(samples):
        rows = samples.reshape(-1, head[CAPACITY], stride + LANES)
        found["samples"] = np.concatenate([rows[..., : head[N_FEATURES]], rows[..., stride : stride + 1]], axis=2)
    else:
        found["samples"] = np.zeros((0, 0, 0))
    others = {name: array for name, array in arrays.items() if name not in ("ints", "floats", "samples")}
    counters = {name: head[index] for name, index in COUNTERS.items()} | {"n_model_seen": 0}
    return settings | {"counters": counters}, found | others
