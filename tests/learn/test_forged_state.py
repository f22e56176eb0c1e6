"""State files with a valid checksum that no learner wrote: refused, whatever the compiled steps would do with them."""

import json
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from deferkit import Budget, Deferrer, Encoder, Pacing, UnreadableState
from deferkit.learn import state
from deferkit.learn.embed.gradient import GradientEmbedding
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.trees import TreeEmbedding
from tests.conftest import draw_tasks

Plain = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Change = Callable[[Plain, Arrays], object]

LEARNERS: dict[str, dict[str, Any]] = {
    "identity": {},
    "logistic": {"link": "logistic"},
    "refitted": {"link": "logistic", "forget": "never"},
    "neural": {"embedding": NeuralEmbedding(hidden=4, every=20)},
    "gradient": {"embedding": GradientEmbedding(hidden=4, every=20)},
    "auto": {"representation": "auto"},
    "stack": {"representation": "auto", "defaults": "2026.12"},
    "trees": {"embedding": TreeEmbedding(least_in_leaf=2, first=30, trees=5)},
}


@cache
def saved(kind: str) -> bytes:
    """Return a learner that has decided 120 tasks, a third of which hold budget or have not heard back.

    With trees it has decided 195, so that some are in use and others are being fitted.
    """
    budget = Budget(60, horizon=400, max_cost=1.0)
    if kind == "encoder":
        encoder = Encoder(numbers=["amount"], categories={"kind": 3})
        named = Deferrer(encoder=encoder, budget=budget)
        for t in range(30):
            named.decide({"amount": float(t), "kind": "abcdef"[t % 6]})
        return named.to_bytes()
    deferrer = Deferrer(n_features=5, budget=budget, memory=40, pacing=Pacing(window=20), **LEARNERS[kind])
    n = {"auto": 195, "stack": 153}.get(kind, 120)
    tasks = draw_tasks(n, 5, binary=True)
    for t in range(n):
        decision = deferrer.decide(tasks.contexts[t])
        if t % 3:
            asked = decision.route != "model"
            rewards = {"model": float(tasks.rewards[t, 0]), decision.route: float(tasks.rewards[t, int(asked)])}
            deferrer.observe(decision.id, rewards, 0.3 if asked else None)
    return deferrer.to_bytes()


def forged(kind: str, change: Change) -> bytes:
    plain, arrays = state.unpack(saved(kind), "a state")
    writable = {name: array.copy() for name, array in arrays.items()}
    change(plain, writable)
    return state.pack(plain, writable)


def fill(name: str, value: float) -> Change:
    return lambda _, arrays: arrays[name].fill(value)


def replace(name: str, make: Callable[[NDArray[Any]], NDArray[Any]]) -> Change:
    return lambda _, arrays: arrays.update({name: make(arrays[name])})


def count(name: str, value: object) -> Change:
    return lambda plain, _: plain["counters"].update({name: value})


def setting(name: str, value: object) -> Change:
    return lambda plain, _: plain["deferrer"].update({name: value})


def encoding(**changed: Any) -> Change:
    return lambda plain, _: plain["encoder"].update(changed)


@pytest.mark.parametrize("kind", [*LEARNERS, "encoder"])
def test_what_is_not_forged_is_read(kind: str) -> None:
    again = forged(kind, lambda *_: None)
    assert again == saved(kind)
    assert Deferrer.from_bytes(again).to_bytes() == again


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("view", 10**6),
        ("view", -1),
        ("n_stashed", 16),
        ("n_stashed", -1),
        ("route", 2),
        ("route", -1),
        ("route", 0),  # the model holds no budget
        ("status", 4),
        ("shares_design", 2),
        ("drifted", -1),
        ("n_observed", -1),
        ("n_absorbed", -1),
        ("n_routed", -1),
        ("next_refit", 0),
        ("pacing_constant", np.nan),
        ("pacing_constant", 1e300),
        ("horizon", 0.0),
        ("max_cost", np.nan),
        ("dual", np.nan),
        ("total", np.nan),
        ("total", np.inf),
        ("spent", np.nan),
        ("reserved", -1.0),
        ("held", np.inf),
    ],
)
def test_a_value_that_no_step_writes_is_refused(name: str, value: float) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("identity", fill(name, value)))


def goes_on(data: bytes) -> bool:
    """Return whether a state is refused; if not, its learner must decide and observe 40 tasks with finite numbers."""
    try:
        deferrer = Deferrer.from_bytes(data)
    except UnreadableState:
        return False
    tasks = draw_tasks(40, 5, binary=True, seed=1)
    for x, (model, human) in zip(tasks.contexts, tasks.rewards.tolist(), strict=True):
        decision = deferrer.decide(x)
        numbers: Any = [*decision.estimates.values(), *decision.costs.values(), decision.price]
        assert np.isfinite(numbers).all()
        asked = decision.route != "model"
        deferrer.observe(decision.id, {"model": model} | ({"human": human} if asked else {}), 0.3 if asked else None)
    return True


NOT_POSITIVE = replace("precision", lambda a: a - 2 * np.tril(a, -1).max() * (1 - np.eye(a.shape[-1])))


@pytest.mark.parametrize("kind", ["identity", "logistic", "auto"])
@pytest.mark.parametrize(
    "change",
    [
        replace("precision", np.negative),
        fill("stash", 1e300),
        fill("rounding", 1e300),
        fill("rounding", 1.0),
        fill("theta", np.nan),
        fill("inverse", -1e300),
        fill("squared_error", -1.0),
        fill("reward", np.inf),
        NOT_POSITIVE,
    ],
    ids=["precision", "stash", "rounding", "rounding 1", "theta", "inverse", "errors", "reward", "not positive"],
)
def test_estimates_that_no_learner_has_are_refused(kind: str, change: Change) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged(kind, change))


FLOATS = [name for name, array in state.unpack(saved("identity"), "a state")[1].items() if array.dtype.kind == "f"]
FORGERIES: list[Callable[[NDArray[Any]], NDArray[Any]]] = [
    np.negative,
    *(partial(np.multiply, factor) for factor in (0.0, 1e-300, 1e10, 1e100, 1e300)),
    *(partial(np.full_like, fill_value=value) for value in (1.0, -1.0, 1e50, 1e300, -1e300, np.inf, np.nan)),
]


@pytest.mark.filterwarnings("ignore")  # of the forgery itself, of a horizon that is over
@settings(max_examples=200)
@given(
    kind=st.sampled_from(["identity", "logistic", "refitted"]),
    name=st.sampled_from(FLOATS),
    forgery=st.sampled_from(FORGERIES),
    only=st.none() | st.integers(0, 10**4),
)
def test_a_forged_array_is_refused_or_estimates_stay_finite(
    kind: str, name: str, forgery: Callable[[NDArray[Any]], NDArray[Any]], only: int | None
) -> None:
    def change(_: Plain, arrays: Arrays) -> None:
        numbers = arrays[name].reshape(-1)
        place = 0 if only is None else only % max(numbers.size, 1)
        places = slice(None) if only is None else slice(place, place + 1)
        numbers[places] = forgery(numbers[places])

    goes_on(forged(kind, change))


def test_a_state_that_is_not_forged_goes_on() -> None:
    assert all(goes_on(saved(kind)) for kind in ("identity", "logistic", "refitted", "auto"))


@pytest.mark.parametrize(
    "change",
    [
        fill("n_observed", 10**12),
        fill("n_observed", 70_000),
        fill("next_refit", 1),
        fill("next_refit", 70_000),
        replace("samples", lambda _: np.zeros((0, 0, 0))),
        replace("samples", lambda a: a[:, :2]),
        replace("samples", lambda a: a[:1]),
        replace("samples", lambda a: a[..., 1:]),
    ],
)
def test_samples_that_a_refit_would_miss_are_refused(change: Change) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("refitted", change))


@pytest.mark.parametrize("name", ["next_id", "warm_up", "retrain_at", "n_seen", "price_due", "unsettled"])
@pytest.mark.parametrize("value", [-1, 2**63 - 1, 2**64, 1.0, True, "7", None])
def test_a_counter_out_of_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("identity", count(name, value)))


@pytest.mark.parametrize("name", ["theta", "inverse", "stash", "dual", "context", "route", "reward", "n_stashed"])
@pytest.mark.parametrize(
    "make",
    [
        lambda a: a[:1],  # numpy would fill the rest with it
        lambda a: a.reshape(-1)[0],
        lambda a: a[:-1],
        lambda a: np.concatenate([a, a]),
        lambda a: np.ones(a.shape, dtype=np.float64 if a.dtype.kind == "i" else np.int64),
    ],
)
def test_an_array_of_another_shape_or_type_is_refused(name: str, make: Callable[[NDArray[Any]], Any]) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("identity", lambda _, arrays: arrays.update({name: np.asarray(make(arrays[name]))})))


@pytest.mark.parametrize(
    "pairs", [[[1, 10**6]], [[1, -(10**6)]], [[1, 3]], [[10**6, 40]], [[1, 40], [1, 41]], [[1, 40], [2, 40]], [1, 40]]
)
def test_an_older_decision_in_a_wrong_row_is_refused(pairs: Any) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("identity", lambda _, arrays: arrays.update(overflow=np.array(pairs))))


@pytest.mark.parametrize(
    "change",
    [
        setting("memory", 2**50),
        setting("memory", 10**6),
        setting("n_features", 10**6),
        setting("experts", ["a", "b"]),
        setting("pacing", {"kind": "adaptive"}),
        setting("link", "logistic"),
        count("unsettled", 1),  # there is no encoder
    ],
)
def test_settings_that_are_not_those_of_the_arrays_are_refused(change: Change) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("identity", change))


@pytest.mark.parametrize(
    "change",
    [
        encoding(numbers=["amount", "age"], scales={"amount": [1, 0.0, 0.0], "age": [1, 0.0, 0.0]}),
        encoding(levels={"kind": list("abcd")}),
        encoding(levels={"kind": [1]}),
        encoding(levels={}),
        encoding(room={"kind": 10**6}),
        encoding(scales={"amount": [1, float("nan"), 0.0]}),
        encoding(scales={"amount": [1, 0.0, -1.0]}),
        encoding(scales={"amount": [1, "x", 0.0]}),
        encoding(scales={}),
        lambda plain, _: plain.update(rows=[{"amount": 1.0}]),
        lambda plain, _: plain.update(rows=None),
        lambda plain, _: (plain["counters"].update(unsettled=1), plain.update(rows=[1] * 30)),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused(change: Change) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("encoder", change))


EMBEDDER = "representation embedder "


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("trees", fill(EMBEDDER + "feature", 5)),
        ("trees", fill(EMBEDDER + "left", 10**6)),
        ("trees", fill(EMBEDDER + "right", -1)),
        ("trees", fill(EMBEDDER + "left", 0)),  # round in a circle
        ("trees", fill(EMBEDDER + "root", -1)),
        ("trees", fill(EMBEDDER + "column", 3)),
        ("trees", replace(EMBEDDER + "value", lambda a: a[:1])),
        ("trees", replace(EMBEDDER + "left", lambda a: a.astype(np.float64))),
        ("trees", replace(EMBEDDER + "past_columns", lambda a: a[:, :1])),
        ("gradient", replace(EMBEDDER + "curvature first", lambda a: a[:, :, :1])),
        ("gradient", replace(EMBEDDER + "curvature offset", lambda a: a[:1])),
        ("gradient", replace(EMBEDDER + "units", lambda a: a[:1])),
        ("neural", replace(EMBEDDER + "body values", lambda a: a[:1])),
        ("neural", replace(EMBEDDER + "body steps", lambda _: np.array([np.inf]))),
        ("neural", replace("representation past rewards", lambda a: a[:1])),
        ("neural", replace("representation past decided", lambda a: a - 1)),
        ("neural", replace("representation old n", lambda a: a[:1])),
        ("neural", fill("representation old n", np.inf)),
        ("neural", fill("representation old n", 1e30)),
        ("neural", fill("dual", np.inf)),
        ("neural", fill("representation old precision", np.nan)),
        ("neural", fill("representation past x", np.nan)),
        ("neural", fill("representation past costs", np.inf)),
        ("neural", fill(EMBEDDER + "trained", -1)),
        ("neural", fill(EMBEDDER + "heads steps", 1e18)),
        ("neural", replace("representation fresh_from", lambda _: np.array([10**12, 0]))),
    ],
)
def test_a_representation_that_does_not_fit_is_refused(kind: str, change: Change) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged(kind, change))


def planned(place: int, value: int) -> Change:
    return lambda _, arrays: arrays["representation schedule"].__setitem__(place, value)


def without(prefix: str) -> Change:
    return lambda _, arrays: [arrays.pop(name) for name in list(arrays) if name.startswith(prefix)]


TREES, FIT = "representation trees ", "representation fit "


def test_the_forged_learner_has_trees_in_use_and_others_under_way() -> None:
    _, arrays = state.unpack(saved("auto"), "a state")
    assert min(len(arrays[TREES + "root"]), len(arrays[FIT + "trees root"]), len(arrays[FIT + "latest"])) > 0


@pytest.mark.parametrize(
    "change",
    [
        planned(0, -1),
        planned(1, 2**60),
        planned(1, 0),  # not when the next step looks
        planned(2, 0),  # a fit is under way
        planned(2, 7),
        planned(3, -1),
        planned(4, 10**6),
        count("retrain_at", 1),
        replace("representation schedule", lambda a: a[:4]),
        replace("representation schedule", lambda a: a.astype(np.float64)),
        fill("representation unit", 0.0),
        fill("representation unit", np.nan),
        fill("representation past x", np.nan),
        fill("representation past rewards", np.inf),
        fill("representation past whose", 2.0),  # there is one expert
        fill("representation past whose", 0.5),
        fill("representation past before", 10**6),
        fill("representation past before", -1),
        replace("representation past before", lambda a: a[::-1]),
        replace("representation past decided", lambda a: a + 1),
        fill(TREES + "feature", 5),
        fill(TREES + "left", 0),  # round in a circle
        fill(TREES + "right", 10**6),
        fill(TREES + "root", -1),
        fill(TREES + "column", 6),  # three targets, two sizes
        fill(TREES + "value", np.nan),
        fill(TREES + "value", np.inf),
        replace(TREES + "threshold", lambda a: a[:1]),
        fill(FIT + "trees feature", 5),
        fill(FIT + "trees value", np.nan),
        fill(FIT + "latest", np.nan),
        replace(FIT + "latest", lambda a: a[:3]),
        replace(FIT + "latest", lambda a: a[:, :3]),
        replace(FIT + "latest", lambda a: np.concatenate([a] * 20)),  # of more tasks than came
        without(FIT),
        without(FIT + "latest"),
        without(TREES),
        fill(FIT + "ledger route", 1),
        fill(FIT + "ledger n_stashed", 16),
        fill(FIT + "ledger view", 2),
        fill(FIT + "ledger forget_every", 1),
        fill(FIT + "ledger member_weight", np.nan),
        replace(FIT + "ledger theta", lambda a: a[:1]),
        replace(FIT + "ledger overflow", lambda _: np.array([[1, 40]])),
        fill("member_weight", 0.2),
        fill("member_weight", np.nan),
        fill("member_prior", 0.125),
        fill("forget_every", 0),
        fill("keep", 2.0),
        fill("member_samples", -1.0),
        fill("forecast_error", np.nan),
        fill("learned_as", -1),
        fill("drift_told", 2),
        fill("n_drifts", -1),
        setting("representation", "linear"),
        setting("representation", 3),
        setting("forget", "never"),
        setting("forget", ["auto"]),
    ],
)
def test_trees_beside_the_decisions_that_do_not_fit_are_refused(change: Change) -> None:
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("auto", change))


HATS = "representation hats "


@pytest.mark.parametrize(
    "change",
    [
        fill(HATS + "knots", 0.0),
        fill(HATS + "knots", np.nan),
        fill(HATS + "n_knots", 1),
        fill(HATS + "n_knots", 7),
        fill(HATS + "heights", np.inf),
        replace(HATS + "heights", lambda a: a[:1]),
        replace(HATS + "n_knots", lambda a: a.astype(np.float64)),
        fill(HATS + "levels", np.nan),
        without(HATS + "levels"),
        without(HATS),  # although there are trees
        fill(FIT + "hats n_knots", -1),
        without(FIT + "hats"),
        fill(TREES + "column", 6),  # that of an additive model
    ],
)
def test_additive_models_that_do_not_fit_are_refused(change: Change) -> None:
    Deferrer.from_bytes(saved("stack"))
    with pytest.raises(UnreadableState, match="does not hold a learner"):
        Deferrer.from_bytes(forged("stack", change))


def with_header(change: Callable[[dict[str, Any]], object], body: Callable[[bytes], bytes] = bytes) -> bytes:
    magic, line, rest = saved("identity").split(b"\n", 2)
    header, rest = json.loads(line), body(rest)
    change(header)
    header["sha256"] = state.checksum(header, rest)
    return b"\n".join([magic, json.dumps(header).encode(), rest])


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(arrays=[1, 2]),
        lambda header: header.update(arrays={"theta": 3}),
        lambda header: header.update(arrays={"theta": ["<f8", [1], "x"]}),
        lambda header: header["arrays"]["total"].__setitem__(1, [-1]),
        lambda header: header["arrays"]["total"].__setitem__(1, "x"),
        lambda header: header["arrays"]["total"].__setitem__(2, -5),
        lambda header: header["arrays"]["total"].__setitem__(0, "<f4"),
        lambda header: header.update(settings=[]),
        lambda header: header.update(version=1),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(UnreadableState):
        Deferrer.from_bytes(with_header(change))


def test_bytes_that_cannot_be_decompressed_are_refused() -> None:
    with pytest.raises(UnreadableState, match="incorrect header check"):
        Deferrer.from_bytes(with_header(lambda _: None, lambda body: b"?" * len(body)))


def test_bytes_that_unpack_to_more_than_the_header_says_are_refused() -> None:
    bomb = zlib.compress(bytes(10**7))
    data = with_header(
        lambda header: header["arrays"].update({"total": ["<f8", [1], len(bomb)]}), lambda body: bomb + body
    )
    with pytest.raises(UnreadableState, match="'total' is of the wrong length"):
        Deferrer.from_bytes(data)


def test_a_header_nested_too_deeply_is_refused() -> None:
    with pytest.raises(UnreadableState, match="damaged header"):
        Deferrer.from_bytes(state.MAGIC + b"[" * 100_000 + b"\n")
