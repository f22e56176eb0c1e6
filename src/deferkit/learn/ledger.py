"""The ledger: the arrays of a learner's state, its compiled core, and the rows of remembered decisions."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import AlreadySettled, UnknownDecision
from deferkit.learn import consistency
from deferkit.learn.core import CONSTANTS, LINKS, REFITS, Core, layout
from deferkit.types import Decision, is_number

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CACHE_LINE = 64  # bytes; a store across two cache lines takes twice as long
FIRST_CAPACITY = 256  # samples for exact refits, at first
NEWTON_STEPS = 10  # of an exact refit: they are rarely more
SHORT_STEP = 1_000_000  # multiplications: a millisecond
OPEN: int = CONSTANTS["open"]
IDENTITY = LINKS.index("identity")
ROWS = (
    "context",
    "past_width",
    "learned_as",
    "at",
    "expected",
    "held",
    "reward",
    "cost",
    "route",
    "status",
    "announced",
)  # arrays with a row for each remembered decision
DERIVED = ("slot", "capacity", "repair_due")  # counters that are not saved
SCALARS = {
    scalar.name: (struct, index) for struct, table in layout.STRUCTS.items() for index, scalar in enumerate(table)
}


class LedgerSpec(NamedTuple):
    """What a ledger is allocated from.

    Attributes:
        scalars: The sizes, options, counters and parameters of a new learner, by their names in `layout.py`.
        experts: The names of the experts.
        resources: The names of the resources.
        reward_bounds: The least and the largest reward.
        cost_bounds: The least and the largest cost of each resource.
    """

    scalars: dict[str, float]
    experts: tuple[str, ...]
    resources: tuple[str, ...]
    reward_bounds: tuple[float, float]
    cost_bounds: list[tuple[float, float]]


def allocate_aligned(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Return zeros whose memory starts at a cache line."""
    n = layout.size_of(shape)
    raw: NDArray[Any] = np.zeros(n + CACHE_LINE // 8, dtype=dtype)
    start = -raw.ctypes.data % CACHE_LINE // 8
    return raw[start : start + n].reshape(shape)


class Ledger:
    """The state of a learner as arrays by name (`layout.py` declares them), and the row of each decision.

    The last `memory` decisions are in a ring. An older one that still holds budget is moved to an overflow row behind
    the ring, so that no reservation is ever lost; overflow rows are added as needed.
    """

    def __init__(self, spec: LedgerSpec) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        for struct, table in layout.STRUCTS.items():
            kind = np.float64 if struct == "Parameters" else np.int64
            self.arrays[struct] = np.array([spec.scalars[scalar.name] for scalar in table], dtype=kind)
        kinds = {array.name: np.float64 if array.kind == "double" else np.int64 for array in layout.ARRAYS}
        for name, shape in self._shapes().items():
            self.arrays[name] = allocate_aligned(shape, kinds[name])
        self.arrays["known_cost"][:] = np.nan
        self.core = Core(self.arrays, spec.experts, spec.resources, spec.reward_bounds, spec.cost_bounds)
        self.core.initialise()
        self.samples: Floats = np.zeros(0)
        self.overflow: dict[int, int] = {}  # decision → its overflow row
        self._free: list[int] = []  # overflow rows
        self.memory = self.get("memory")
        self.refits = self.get("refit") != REFITS.index("never") and not (
            self.get("reward_link") == self.get("cost_link") == IDENTITY
        )
        self._make_views()

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the arrays, by their names in `layout.py`."""
        return dict(zip((scalar.name for scalar in layout.SIZES), self.arrays["Sizes"].tolist(), strict=True))

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return layout.shapes(self.sizes())

    def _make_views(self) -> None:
        features = slice(0, self.get("n_features"))
        self._views = {
            array.name: self.arrays[array.name][
                tuple(features if letter == "d" else slice(None) for letter in array.shape.split())
            ]
            for array in layout.ARRAYS
        }
        self.reward, self.cost = self._views["reward"], self._views["cost"]
        self.route, self.status = self._views["route"], self._views["status"]
        # no pacing knows of the solved prices and arrears at the end, nor of the boost of free exploration
        behind = self.get("free_exploration") + 2 * self.get("catches_up") * self.get("n_resources")
        self.dual = self._views["dual"][: self.get("n_dual") - behind]
        self.price = self.dual[: self.get("n_resources")]

    def view(self, name: str) -> NDArray[Any]:
        """Return an array by name, without padding; it shares memory with the state."""
        return self._views[name]

    def get(self, name: str) -> int:
        """Return a size, an option or a counter by name."""
        struct, index = SCALARS[name]
        return self.arrays[struct].item(index)

    def parameter(self, name: str) -> float:
        """Return a parameter by name."""
        struct, index = SCALARS[name]
        return float(self.arrays[struct][index])

    def set(self, name: str, value: float) -> None:
        """Set a counter or a parameter by name."""
        struct, index = SCALARS[name]
        self.arrays[struct][index] = value

    @property
    def next_id(self) -> int:
        """The id of the next decision."""
        return self.core.next_id

    def slot(self, decision: object) -> int:
        """Return the row of a decision; raise `UnknownDecision` or `AlreadySettled` if it has none."""
        following = self.core.next_id
        if type(decision) is int and max(0, following - self.memory) <= decision < following:
            return decision % self.memory
        if not is_number(decision) or not 0 <= decision < following or decision % 1:  # type: ignore[operator]
            if isinstance(decision, Decision):
                raise UnknownDecision(f"A decision is known by its id: pass decision.id, which is {decision.id}.")
            known = f"0 to {following - 1}" if following else "none yet"
            raise UnknownDecision(f"There is no decision {decision!r}. There are: {known}.")
        number = int(decision)  # type: ignore[call-overload]
        if number >= following - self.memory:
            return number % self.memory
        if number in self.overflow:
            return self.overflow[number]
        raise AlreadySettled(
            f"Decision {number} is already settled; only the last {self.memory:,} decisions"
            " and those that hold budget are remembered."
        )

    def move_open_decisions(self, n: int) -> None:
        """Move decisions that hold budget to overflow rows, if the next n decisions take their rows in the ring."""
        first = self.core.next_id - self.memory
        if n == 1 and (first < 0 or self.status.item(first % self.memory) != OPEN):
            return
        decisions = np.arange(max(first, 0), max(first + n, 0))
        for decision in decisions[self.status[decisions % self.memory] == OPEN].tolist():
            if decision not in self.overflow:
                self._move(decision, decision % self.memory)

    def _move(self, decision: int, slot: int) -> None:
        if not self._free:
            self.grow_overflow(max(16, 2 * self.get("overflow")))
        row = self._free.pop()
        for name in ROWS:
            self.arrays[name][row] = self.arrays[name][slot]
        self.overflow[decision] = row

    def grow_overflow(self, n: int) -> None:
        """Set the number of overflow rows."""
        self.set("overflow", n)
        shapes = self._shapes()
        for name in ROWS:
            before = self.arrays[name]
            self.arrays[name] = allocate_aligned(shapes[name], before.dtype.type)
            self.arrays[name][: len(before)] = before
        self.core.bind(self.arrays)
        self._make_views()
        self._find_free()

    def _find_free(self) -> None:
        """List the free overflow rows, the first one last, so that it is taken first."""
        taken = set(self.overflow.values())
        room = range(self.memory, self.memory + self.get("overflow"))
        self._free = [row for row in reversed(room) if row not in taken]

    def free_overflow_row(self, decision: int, slot: int) -> None:
        """Free the overflow row of a decision that no longer holds budget."""
        if slot >= self.memory and self.status[slot] != OPEN:
            del self.overflow[decision]
            self._find_free()

    def _select_refit(self) -> slice:
        """Return the targets whose samples are stored for refits."""
        deciders, targets = self.get("n_experts") + 1, self.get("n_targets")
        return slice(
            0 if self.get("reward_link") != IDENTITY else deciders,
            targets if self.get("cost_link") != IDENTITY else deciders,
        )

    def grow_sample_store(self, n: int) -> None:
        """Grow the sample store for n more samples of each refitted target; free it after the last refit."""
        if not self.refits:
            return
        counts = self.view("n_observed")[self._select_refit()]
        limit, before = self.get("refit_limit"), self.get("capacity")
        if counts.min() >= limit:
            self._store_samples(np.zeros((len(counts), 0, 0)))
            return
        need = min(int(counts.max()) + n, limit)
        if need > before:
            capacity = max(FIRST_CAPACITY, need, min(2 * before, limit))
            stride = self.get("stride") + layout.N_LANES
            grown = allocate_aligned((len(counts), capacity, stride), np.float64)
            grown[:, :before] = self.samples.reshape(len(counts), before, stride)
            self._store_samples(grown)

    def _store_samples(self, samples: Floats) -> None:
        """Use a sample store [targets, capacity, stride + lanes] from now on."""
        self.samples = samples.reshape(-1)
        self.set("capacity", samples.shape[1])
        self.core.bind_samples(self.samples)

    def budget_left(self) -> Floats:
        """Return the budget left of each resource: neither spent nor reserved."""
        with np.errstate(invalid="ignore"):
            return np.maximum(self.view("total") - self.view("spent") - self.view("reserved"), 0.0)

    def counters(self) -> dict[str, int]:
        """Return the saved counters by name."""
        return {each.name: self.get(each.name) for each in layout.COUNTERS if each.name not in DERIVED}

    def longest_step(self, decision: int) -> int:
        """Return the multiplications for the inverses and exact refits that observing a decision may recompute.

        An inverse is recomputed where a member forgets, where a check is due that it may fail, and beside a context so
        large that an update would leave it no digits.
        """
        d, designs = self.get("n_features"), self.get("n_members") * self.get("n_targets")
        if not self.refits and designs * d**3 < SHORT_STEP:
            return designs * d**3
        samples = self.view("n_absorbed") + 1
        every = np.repeat(self.view("forget_every"), self.get("n_targets"))
        due = (every > 0) & (samples % np.maximum(every, 1) == 0)
        check = CONSTANTS["stash"] * CONSTANTS["check_every"]
        due |= (samples >= check) & (samples % check < CONSTANTS["stash"])
        squares = np.square(self.view("context")[self.slot(decision)]).sum(axis=-1)
        if squares.max() > CONSTANTS["sure_spread"] * self.get("ridge"):
            due[:] = True
        steps = int(due.sum()) * d**3
        if self.refits:
            counts, following = (self.view(name)[self._select_refit()] for name in ("n_observed", "next_refit"))
            steps += NEWTON_STEPS * d**2 * int(counts[counts + 1 >= following].sum())
        return steps

    def switches_link(self, rewards: Iterable[float]) -> bool:
        """Whether one of these rewards would switch an automatic link: the first that is neither 0 nor 1."""
        return self.get("link_state") == CONSTANTS["link_binary"] and any(y not in (0.0, 1.0) for y in rewards)

    def relearning_step(self) -> int:
        """Return the multiplications for learning the outcomes of all remembered decisions again."""
        d, n, targets = self.get("n_features"), min(self.next_id, self.memory), self.get("n_targets")
        known = int((~np.isnan(self.reward[:n])).sum())
        known += int((~np.isnan(self.cost[:n][self.route[:n] > 0])).sum())
        every = self.view("forget_every")
        inverses = sum(known // each for each in every[every > 0].tolist())
        return len(every) * (n * targets + 2 * known) * d**2 + inverses * d**3

    @property
    def n_bytes(self) -> int:
        """The size of the saved arrays in memory."""
        samples = self.samples.nbytes if self.refits else 0
        return samples + sum(self.view(array.name).nbytes for array in layout.STATE)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name, without spare capacity for samples."""
        arrays = {array.name: self.view(array.name) for array in layout.STATE}
        if self.refits:
            counts = self.view("n_observed")[self._select_refit()]
            d, stride = self.get("n_features"), self.get("stride")
            stored = self.samples.reshape(len(counts), self.get("capacity"), stride + layout.N_LANES)
            kept = stored[:, : int(counts.max())]
            arrays["samples"] = np.concatenate([kept[..., :d], kept[..., stride : stride + 1]], axis=2)
        overflow = np.array(sorted(self.overflow.items()), dtype=np.int64).reshape(-1, 2)
        return arrays | {"overflow": overflow}

    def restore(self, counters: dict[str, int], saved: dict[str, NDArray[Any]]) -> None:
        """Restore from `counters()` and `state()`; raise ValueError if they are inconsistent."""
        consistency.check_counters(counters, list(self.counters()))
        if (counters["link_state"] > 0) != (self.get("link_state") > 0):
            raise ValueError("the state of the link contradicts the settings")
        if counters["link_state"] == CONSTANTS["link_switched"]:
            self.core.use_identity_link()
            self.view("shares_design")[:] = self.get("cost_link") == IDENTITY
        if self.get("retrain_at") == consistency.NEVER != counters["retrain_at"]:
            raise ValueError("a retraining is due, but there is no embedding")
        consistency.check_values(saved, self._views)
        consistency.check_times(saved["at"], float(saved["clock"][0]), self.memory, counters["next_id"])
        consistency.check_overflow(saved["overflow"], saved["status"], self.memory, counters["next_id"])
        self.grow_overflow(len(saved["route"]) - self.memory)
        for array in layout.STATE:
            self.view(array.name)[...] = saved[array.name]
        for name in self.counters():
            self.set(name, counters[name])
        self.set("slot", self.next_id % self.memory)
        if self.refits:
            self._restore_samples(saved["samples"])
        self.overflow = {int(decision): int(row) for decision, row in saved["overflow"]}
        self._find_free()

    def _restore_samples(self, kept: Floats) -> None:
        counts, following = (self.view(name)[self._select_refit()] for name in ("n_observed", "next_refit"))
        consistency.check_samples(kept, counts, following, self.get("n_features"), self.get("refit_limit"))
        if kept.size:
            stride = self.get("stride")
            samples = allocate_aligned((*kept.shape[:2], stride + layout.N_LANES), np.float64)
            samples[..., : kept.shape[2] - 1], samples[..., stride] = kept[..., :-1], kept[..., -1]
            self._store_samples(samples)
