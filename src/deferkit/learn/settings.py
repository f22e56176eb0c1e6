"""All settings of a learner, checked, and how they stand in its arrays."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from deferkit.errors import expected
from deferkit.learn import arrays
from deferkit.learn.arrays import Floats, Ints
from deferkit.learn.embed import EMBEDDINGS, embedding_from
from deferkit.learn.embed.embedding import Embedding, Shape
from deferkit.learn.exploration import Exploration
from deferkit.learn.glm import FIRST_REFIT, REFITS
from deferkit.learn.ledger import Ledger
from deferkit.learn.links import link_named
from deferkit.learn.loop import start
from deferkit.learn.pacing import CODES, LEAST_BUDGET, Pacing
from deferkit.types import MODEL, Budget, is_number, is_whole, plain

MOST_EXPERTS = 32
FOREVER = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a `Deferrer` was made with."""

    n_features: int
    budget: Mapping[str, Budget]
    experts: tuple[str, ...] = ("human",)
    link: str = "identity"
    cost_link: str = "identity"
    pacing: Pacing = field(default_factory=Pacing)
    exploration: Exploration = field(default_factory=Exploration)
    ridge: float | None = None
    warm_up: int | None = None
    explore_floor: float = 0.0
    reward_range: tuple[float, float] = (0.0, 1.0)
    refit: str = "doubling"
    refit_limit: int = 65_536
    memory: int = 10_000
    seed: int = 0
    printed_costs: bool = False
    weighted: bool = True
    embedding: Embedding | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name, least in (("n_features", 1), ("memory", 1), ("seed", 0), ("refit_limit", FIRST_REFIT)):
            value = getattr(self, name)
            if not is_whole(value, least):
                raise expected(name, "Deferrer", f"a whole number of at least {least}", value)
            object.__setattr__(self, name, int(value))
        if self.warm_up is not None and not is_whole(self.warm_up, 0):
            raise expected("warm_up", "Deferrer", "None or a whole number of at least 0", self.warm_up)
        if not all(isinstance(name, str) and name for name in (*self.experts, *self.budget)):
            raise expected("experts", "Deferrer", "given by name, as resources are", (*self.experts, *self.budget))
        if not self.experts or len(set(self.experts)) < len(self.experts) or len(self.experts) > MOST_EXPERTS:
            raise expected("experts", "Deferrer", f"1 to {MOST_EXPERTS} different names", self.experts)
        if MODEL in self.experts:
            raise expected("experts", "Deferrer", f"names other than {MODEL!r}", self.experts)
        if not self.budget or not all(isinstance(each, Budget) for each in self.budget.values()):
            raise expected("budget", "Deferrer", "a Budget, or a Budget for each resource by name", self.budget)
        if not isinstance(self.refit, str) or self.refit not in REFITS:
            raise expected("refit", "Deferrer", "one of " + ", ".join(map(repr, REFITS)), self.refit)
        if self.ridge is not None and (not is_number(self.ridge) or not 0 < self.ridge < math.inf):
            raise expected("ridge", "Deferrer", "None or a finite number above 0", self.ridge)
        if not is_number(self.explore_floor) or not 0 <= self.explore_floor <= 1:
            raise expected("explore_floor", "Deferrer", "a number from 0 to 1", self.explore_floor)
        link_named(self.link), link_named(self.cost_link, "cost_link")
        pair = self.reward_range
        if not (isinstance(pair, Sequence) and len(pair) == 2 and all(map(is_number, pair)) and pair[0] < pair[1]):
            raise expected("reward_range", "Deferrer", "(low, high) with low < high", pair)
        if self.reward_bounds[0] >= self.reward_bounds[1]:
            raise expected("reward_range", "Deferrer", f"within what the {self.link} link can be fitted to", pair)
        if self.memory < self.pacing.window and self.pacing.kind == "resolve":
            raise expected("memory", "Deferrer", f"at least the pacing's window of {self.pacing.window}", self.memory)
        linear = self.link == self.cost_link == "identity"
        if self.exploration.sampled and not (linear and len(self.experts) == 1):
            raise expected(
                "exploration", "Deferrer", "optimistic unless there is one expert and no link", "sampled=True"
            )
        if self.embedding is not None and not isinstance(self.embedding, EMBEDDINGS):
            names = " or ".join(f"a {kind.__name__}" for kind in EMBEDDINGS)
            raise expected("embedding", "Deferrer", f"None, {names}", self.embedding)
        if self.embedding is not None and self.cost_link != "identity":
            raise expected("cost_link", "Deferrer", "'identity' with an embedding", self.cost_link)
        if not self.weighted and self.refit != "always" and self.link != "identity":
            raise expected("refit", "Deferrer", "'always' where samples are not weighted", self.refit)

    @classmethod
    def paper(
        cls,
        *,
        n_features: int,
        budget: Budget,
        experts: tuple[str, ...],
        link: str,
        cost_link: str,
        exploration: Exploration,
        warm_up: int,
        reward_range: tuple[float, float],
        seed: int,
    ) -> "Settings":
        """Return the whole printed setting of Algorithm 1."""
        return cls(
            n_features=n_features,
            budget={"cost": budget},
            experts=experts,
            link=link,
            cost_link=cost_link,
            pacing=Pacing(kind="paper"),
            exploration=exploration,
            ridge=1e-6,
            warm_up=warm_up,
            reward_range=reward_range,
            refit="always",
            seed=seed,
            printed_costs=True,
            weighted=False,
        )

    @property
    def deciders(self) -> tuple[str, ...]:
        """The model and the experts."""
        return (MODEL, *self.experts)

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources."""
        return tuple(self.budget)

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """What a reward may be: within `reward_range` and what the link can be fitted to."""
        low, high = link_named(self.link).domain
        return max(low, self.reward_range[0]), min(high, self.reward_range[1])

    @property
    def cost_bounds(self) -> list[tuple[float, float]]:
        """What a cost may be, for each resource."""
        _, high = link_named(self.cost_link).domain
        return [(0.0, min(high, math.inf if b.max_cost is None else b.max_cost)) for b in self.budget.values()]

    @property
    def warm_up_steps(self) -> int:
        """How many decisions are taken at random at the start: one for each feature, unless set."""
        return int(self.n_features if self.warm_up is None else self.warm_up)

    @property
    def shape(self) -> Shape:
        """What an embedding is made for."""
        seed = int(self.seed)
        return Shape(self.n_features, len(self.experts), len(self.budget), self.link, self.reward_bounds, seed)

    @property
    def views(self) -> list[int]:
        """Which of a context's views each estimate looks at: without an embedding there is one."""
        return [0] * self.shape.n_targets if self.embedding is None else self.embedding.views(self.shape)

    @property
    def ridge_used(self) -> float:
        """The ridge, given or that of the link."""
        links = (link_named(self.link), link_named(self.cost_link))
        return max(link.ridge for link in links) if self.ridge is None else self.ridge

    def head(self) -> Ints:
        """Return the head of the int buffer."""
        head = np.zeros(arrays.HEAD, dtype=np.int64)
        width = int(self.n_features) if self.embedding is None else self.embedding.width(self.shape)
        head[arrays.N_FEATURES] = width
        head[arrays.STRIDE] = arrays.whole_lanes(width)
        head[arrays.N_VIEWS] = max(self.views) + 1
        head[arrays.RETRAIN_AT] = FOREVER if self.embedding is None else self.embedding.next_at(0)
        head[arrays.FROZEN] = self.embedding is not None and self.embedding.frozen
        head[arrays.N_EXPERTS] = len(self.experts)
        head[arrays.N_RESOURCES] = len(self.budget)
        head[arrays.MEMORY] = self.memory
        head[arrays.WINDOW] = arrays.whole_lanes(self.pacing.window if self.pacing.kind == "resolve" else 0)
        head[arrays.REWARD_LINK] = link_named(self.link).code
        head[arrays.COST_LINK] = link_named(self.cost_link).code
        head[arrays.PACING] = CODES[self.pacing.kind]
        head[arrays.EVERY] = self.pacing.every
        # a representation refits by itself, when it has changed
        head[arrays.REFIT] = REFITS[self.refit if self.embedding is None else "never"]
        head[arrays.REFIT_LIMIT] = FOREVER if self.refit == "always" else self.refit_limit
        head[arrays.PRINTED_COSTS] = self.printed_costs
        head[arrays.FISHER] = self.weighted
        head[arrays.WARM_UP] = self.warm_up_steps
        head[arrays.SAMPLED] = self.exploration.sampled
        head[arrays.KEY] = np.random.SeedSequence(int(self.seed)).generate_state(1, np.uint64).view(np.int64)[0]
        return head

    def ledger(self) -> Ledger:
        """Return the state of a learner that has seen nothing."""
        head = self.head()
        ledger = Ledger(head)
        self._write_settings(ledger.floats)
        budgets = list(self.budget.values())
        total = ledger.view("total")
        total[:] = [budget.total for budget in budgets]
        horizon = ledger.view("horizon")
        horizon[:] = [math.inf if budget.horizon is None else budget.horizon for budget in budgets]
        ledger.view("max_cost")[:] = [math.nan if b.max_cost is None else b.max_cost for b in budgets]
        ledger.view("sees")[:] = np.array(self.views) * head[arrays.STRIDE]
        exact = link_named(self.link).exact_updates and link_named(self.cost_link).exact_updates
        for expert in range(len(self.experts)):
            first = 1 + len(self.experts) + expert * len(budgets)
            alike = {self.views[expert + 1], *self.views[first : first + len(budgets)]}
            ledger.view("follows")[expert] = exact and len(alike) == 1 and not head[arrays.FROZEN]
        ledger.view("next_refit")[:] = 1 if self.refit == "always" else FIRST_REFIT
        ledger.view("next_solve")[:] = self.warm_up_steps
        if self.pacing.kind in ("paper", "gradient"):
            epsilon = np.sqrt(2.0 / horizon)
            ledger.view("log_up")[:] = np.log1p(epsilon)
            ledger.view("log_down")[:] = np.log1p(-np.minimum(epsilon, 0.999))
            bounded = (total > LEAST_BUDGET) & np.isfinite(total)
            # γ = ½ at the start; α = ½ as printed, though α = 1 is what goes with γ = ½
            share = 0.5 if len(budgets) == 1 else 1.0 / (1.0 + len(budgets))
            ledger.view("price")[bounded] = share * horizon[bounded] / total[bounded]
            ledger.view("log_weight")[:] = math.log(0.5) if self.pacing.kind == "paper" else 0.0
        start(ledger.floats, ledger.ints)
        return ledger

    def _write_settings(self, floats: Floats) -> None:
        floats[arrays.RIDGE] = self.ridge_used
        floats[arrays.SCALE] = self.exploration.scale
        floats[arrays.NOISE] = math.nan if self.exploration.noise is None else self.exploration.noise
        floats[arrays.DELTA] = math.nan if self.exploration.delta is None else self.exploration.delta
        floats[arrays.KAPPA] = self.exploration.kappa
        floats[arrays.FLOOR] = self.explore_floor
        floats[arrays.STEP] = self.pacing.step
        floats[arrays.PRIOR] = self.exploration.prior
        floats[arrays.DISCOUNT] = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        embedding = None if self.embedding is None else self.embedding.to_dict()
        budgets = {name: asdict(each) for name, each in self.budget.items()}
        plain = {"pacing": asdict(self.pacing), "exploration": asdict(self.exploration), "budget": budgets}
        return given | plain | {"embedding": embedding}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Settings":
        """Return the settings that `to_dict` was asked for."""
        return cls(
            **{
                **plain,
                "experts": tuple(plain["experts"]),
                "reward_range": tuple(plain["reward_range"]),
                "pacing": Pacing(**plain["pacing"]),
                "exploration": Exploration(**plain["exploration"]),
                "embedding": None if plain["embedding"] is None else embedding_from(plain["embedding"]),
                "budget": {
                    name: Budget(each["total"], horizon=each["horizon"], max_cost=each["max_cost"])
                    for name, each in plain["budget"].items()
                },
            }
        )
