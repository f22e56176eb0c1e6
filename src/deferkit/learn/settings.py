"""The settings of a learner: members, and the checks of the arguments that they are made from."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import AssumptionWarning, MissingTreesWarning, UnaffordableReviewWarning, expected
from deferkit.extras import join_names
from deferkit.learn.core import CONSTANTS, REFITS
from deferkit.learn.embed import EMBEDDINGS, REPRESENTATIONS, embedding_from, is_embedding, kind_of
from deferkit.learn.embed.embedding import Embedding, Shape
from deferkit.learn.embed.representation import RepresentationKind
from deferkit.learn.encode import FREEZE_AFTER, Encoder
from deferkit.learn.exploration import INDEX, INTERVAL_SCALE, Exploration
from deferkit.learn.links import AUTO_LINK, Link, link_named
from deferkit.learn.pacing import Budgets, Pacing, Strategy
from deferkit.learn.pacing.compiled import Renewing
from deferkit.types import AUTO, MODEL, Budget, is_number, is_whole, plain

FORGETS = ("auto", "never")
WINDOWS = ((1_500, 128), (300, 64), (60, 32))  # effective samples of a member, and samples between two discounts

RANK_WEIGHT = 2.0  # prior weight of the rank view, in units of another view
CONFIDENT_RANK_WEIGHT = 4.0  # where the confidence is named, whose rank has a prior slope
RANK_RATES = (0, 2)  # of the members that read ranks: none, and the middle window; more cost time and gain nothing
STACK_RATES = (0, 2)  # of the members that read the stack


class Member(NamedTuple):
    """One estimate of every target.

    Attributes:
        view: The view of a context that it reads; None for the one that the embedding assigns to the target.
        prior: Its weight before any observation; the weights of all members add up to 1.
        forget_every: The number of samples between two discounts; 0 if it forgets nothing.
        keep: The factor of a discount, applied to everything learned so far.
    """

    view: int | None
    prior: float
    forget_every: int
    keep: float


def members_of(
    forget: str,
    views: int | None,
    *,
    values: bool = True,
    ranks: bool = False,
    rank_weight: float = RANK_WEIGHT,
    stacked: bool = False,
) -> list[Member]:
    """Return the members of a mixture: every window for each view, those that forget nothing first, then the ranks.

    Args:
        forget: "auto", or "never" for members that forget nothing.
        views: The number of views with members of their own; None if the embedding assigns the views.
        values: Whether there are members for these views; True by default.
        ranks: Whether there are members for the rank view, which comes after these views; False by default.
        rank_weight: The prior weight of the rank view, in units of another view.
        stacked: Whether view 1 is a stack, with members at `STACK_RATES` only; False by default.

    >>> [(each.forget_every, round(each.prior, 3)) for each in members_of("auto", None)]
    [(0, 0.533), (128, 0.267), (64, 0.133), (32, 0.067)]
    >>> members_of("never", None)
    [Member(view=None, prior=1.0, forget_every=0, keep=1.0)]
    >>> [(each.view, round(each.prior, 3)) for each in members_of("never", None, ranks=True)]
    [(0, 0.333), (1, 0.667)]
    """
    rates = [(0, 1.0), *((every, (1 - 1 / window) ** every) for window, every in WINDOWS)]
    rates = rates if forget == "auto" else rates[:1]
    fewer: dict[int | None, Sequence[int]] = {1: STACK_RATES} if stacked else {}
    if not ranks:
        return _of_views(rates, [None] if views is None else list(range(views)), 1.0, fewer)
    n = views or 1
    share = n / (n + rank_weight) if values else 0.0
    of_values = _of_views(rates, list(range(n)), share, fewer) if values else []
    return of_values + _of_views(rates, [n], 1.0 - share, fewer | {n: RANK_RATES})


def _of_views(
    rates: list[tuple[int, float]],
    views: Sequence[int | None],
    share: float,
    fewer: Mapping[int | None, Sequence[int]],
) -> list[Member]:
    """Return a member for each rate and view, with this share of the prior weight; some views have `fewer` rates."""
    members = []
    for i, (every, keep) in enumerate(rates):
        for view in views:
            used = [rate for rate in fewer.get(view, range(len(rates))) if rate < len(rates)]
            if i in used:
                total = len(views) * sum(0.5**rank for rank in range(len(used))) / share
                members.append(Member(view, 0.5 ** used.index(i) / total, every, keep))
    return members


MAX_EXPERTS = 32
FIRST_REFIT = 16  # samples before the first exact refit
FOREVER = 1 << 62  # a count that is never reached
NOVEMBER_2026, DECEMBER_2026 = "2026.11", "2026.12"
DEFAULTS = (NOVEMBER_2026, DECEMBER_2026)  # versions of the default rule
DEFAULT_RULE = DECEMBER_2026  # of learners that are made without `defaults`
PRIOR_RIDGE = 0.1  # with a confidence prior
NOISE_SAMPLES = 4.0  # pseudo-samples of the noise prior
BEST = "auto"  # the representation of named features, where it is possible
PARTS = ("values", "ranks", "noise prior", "free exploration")  # of the default that studies can leave out


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a `Deferrer`; its docstring describes them.

    Three more are those of `Deferrer.paper`.

    Attributes:
        printed_costs: Optimistic costs exactly as Algorithm 1 prints them: not clipped at 0, and one for the model.
        weighted: Whether samples weigh μ' in their design (default); else 1, as in the paper's M.
        budget: The budgets by resource.
        confidence: The index of the model's own confidence in a context vector; None (default) if there is none.
        without: Parts of the default that a study leaves out, of `PARTS`.
    """

    n_features: int
    budget: Mapping[str, Budget]
    experts: tuple[str, ...] = ("human",)
    link: str = AUTO_LINK
    cost_link: str = "identity"
    pacing: Pacing = field(default_factory=Pacing)
    exploration: Exploration = field(default_factory=Exploration)
    ridge: float | None = None
    warm_up: int | None = None
    explore_floor: float = 0.0
    reward_range: tuple[float, float] = (0.0, 1.0)
    refit: str | None = None
    forget: str | None = None
    refit_limit: int = 65_536
    memory: int = 10_000
    seed: int = 0
    printed_costs: bool = False
    weighted: bool = True
    embedding: Embedding | None = None
    representation: str = "linear"
    confidence: int | None = None
    defaults: str = DEFAULT_RULE
    without: tuple[str, ...] = ()

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
        if not self.experts or len(set(self.experts)) < len(self.experts) or len(self.experts) > MAX_EXPERTS:
            raise expected("experts", "Deferrer", f"1 to {MAX_EXPERTS} different names", self.experts)
        if MODEL in self.experts:
            raise expected("experts", "Deferrer", f"names other than {MODEL!r}", self.experts)
        if not self.budget or not all(isinstance(each, Budget) for each in self.budget.values()):
            raise expected("budget", "Deferrer", "a Budget, or a Budget for each resource by name", self.budget)
        by_expert = [each.max_cost for each in self.budget.values() if isinstance(each.max_cost, Mapping)]
        if any(set(caps) != set(self.experts) for caps in by_expert):
            raise expected("max_cost", "Budget", f"given for {', '.join(self.experts)}", by_expert)
        self._check_words()
        self._check_rule()
        self._check_pacing()
        trains = REPRESENTATIONS[self.representation].trains
        if trains and (self.embedding is not None or self.cost_link != "identity"):
            raise expected(
                "representation", "Deferrer", "'linear' with an embedding or a cost_link", self.representation
            )
        if self.forget == "auto" and self.kind.replaces:
            raise expected("forget", "Deferrer", "'never' with an embedding, which refits its past", self.forget)
        if self.ridge is not None and (not is_number(self.ridge) or not 0 < self.ridge < math.inf):
            raise expected("ridge", "Deferrer", "None or a finite number above 0", self.ridge)
        if not is_number(self.explore_floor) or not 0 <= self.explore_floor <= 1:
            raise expected("explore_floor", "Deferrer", "a number from 0 to 1", self.explore_floor)
        pair = self.reward_range
        if not (isinstance(pair, Sequence) and len(pair) == 2 and all(map(is_number, pair)) and pair[0] < pair[1]):
            raise expected("reward_range", "Deferrer", "(low, high) with low < high", pair)
        if self.reward_bounds[0] >= self.reward_bounds[1]:
            raise expected("reward_range", "Deferrer", f"within the domain of the {self.link} link", pair)
        reward_link, cost_link = self.first_link, link_named(self.cost_link)
        linear = reward_link.exact_updates and cost_link.exact_updates
        if self.exploration.sampled and not (linear and len(self.experts) == 1):
            raise expected(
                "exploration", "Deferrer", "optimistic unless there is one expert and no link", "sampled=True"
            )
        if self.embedding is not None and not cost_link.exact_updates:
            raise expected("cost_link", "Deferrer", "'identity' with an embedding", self.cost_link)
        if not self.weighted and self.refit_used != "always" and not reward_link.exact_updates:
            raise expected("refit", "Deferrer", "'always' where samples are not weighted", self.refit)

    def _check_words(self) -> None:
        if not isinstance(self.representation, str) or self.representation not in REPRESENTATIONS:
            known = ", ".join(map(repr, REPRESENTATIONS))
            raise expected("representation", "Deferrer", f"one of {known}", self.representation)
        if self.embedding is not None and not is_embedding(self.embedding):
            names = " or ".join(f"a {kind.__name__}" for kind in EMBEDDINGS)
            raise expected("embedding", "Deferrer", f"None, {names}, or one of a plug-in", self.embedding)
        for name, words in (("refit", REFITS), ("forget", FORGETS)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or value not in words):
                raise expected(name, "Deferrer", "one of " + ", ".join(map(repr, words)), value)
        if self.refit not in (None, "never") and self.forget_used != "never":
            raise expected("refit", "Deferrer", "'never' where something is forgotten", self.refit)

    def _check_rule(self) -> None:
        """Check the version of the default rule and its parts, and resolve an automatic link that cannot switch."""
        if not isinstance(self.defaults, str) or self.defaults not in DEFAULTS:
            raise expected("defaults", "Deferrer", "one of " + ", ".join(map(repr, DEFAULTS)), self.defaults)
        if not set(self.without) <= set(PARTS) or set(self.without) >= {"values", "ranks"}:
            raise expected("without", "Deferrer", "some of " + ", ".join(map(repr, PARTS)), self.without)
        if self.confidence is not None and not (is_whole(self.confidence, 0) and self.confidence < self.n_features):
            raise expected("confidence", "Deferrer", "the index or the name of a feature", self.confidence)
        if self.confidence is not None and not (self.has_new_defaults and all(map(math.isfinite, self.reward_range))):
            needed = f"None, unless defaults={DECEMBER_2026!r}, with a finite reward_range, no embedding, no intervals"
            raise expected("confidence", "Deferrer", needed, self.confidence)
        link_named(self.cost_link, "cost_link")
        if not isinstance(self.link, str) or self.link != AUTO_LINK:
            link_named(self.link)  # raises if there is no such link
        elif not self.has_auto_link:
            object.__setattr__(self, "link", "identity")

    def _check_pacing(self) -> None:
        if self.is_timed and self.pacing.kind != "resolve":
            raise expected("pacing", "Deferrer", "'resolve' where a budget has `until` or `every`", self.pacing.kind)
        if self.memory < self.pacing.window:
            raise expected("memory", "Deferrer", f"at least the pacing's window of {self.pacing.window}", self.memory)

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
        """Return the settings of Algorithm 1 as printed; `Deferrer.paper` describes the arguments."""
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
            forget="never",
            seed=seed,
            defaults=NOVEMBER_2026,
            printed_costs=True,
            weighted=False,
        )

    @property
    def deciders(self) -> tuple[str, ...]:
        """The names of the model and the experts."""
        return (MODEL, *self.experts)

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources."""
        return tuple(self.budget)

    @cached_property
    def reward_bounds(self) -> tuple[float, float]:
        """The least and the largest reward: the intersection of `reward_range` and the domain of the link."""
        low, high = self.first_link.domain
        return max(low, self.reward_range[0]), min(high, self.reward_range[1])

    @cached_property
    def cost_bounds(self) -> list[tuple[float, float]]:
        """The least and the largest cost of one decision, for each resource; what exceeds it overruns the budget."""
        _, high = link_named(self.cost_link).domain
        caps = np.where(np.isnan(self.caps), np.inf, self.caps).max(axis=0)
        return [(0.0, min(high, cap)) for cap in caps.tolist()]

    @property
    def caps(self) -> NDArray[np.float64]:
        """The `max_cost` of each expert [K] and resource [R]; NaN where it is not known."""
        given = [[budget.max_cost_of(expert) for budget in self.budget.values()] for expert in self.experts]
        return np.array(given, dtype=np.float64)

    @property
    def largest_costs(self) -> NDArray[np.float64]:
        """The largest cost that is accepted of each expert [K] and resource [R]: the cap only where it is strict."""
        _, high = link_named(self.cost_link).domain
        strict = [budget.strict for budget in self.budget.values()]
        return np.fmin(high, np.where(strict, self.caps, np.inf))

    @property
    def warm_up_steps(self) -> int:
        """The number of random decisions at the start: as given, else 1, or one for each feature with intervals."""
        default = 1 if self.exploration.rule == INDEX else self.n_features
        return int(default if self.warm_up is None else self.warm_up)

    @property
    def shape(self) -> Shape:
        """The sizes and the link that an embedding is made for."""
        seed = int(self.seed)
        link = self.first_link.name
        stacked = self.has_new_defaults
        return Shape(self.n_features, len(self.experts), len(self.budget), link, self.reward_bounds, seed, stacked)

    @property
    def kind(self) -> RepresentationKind:
        """The kind of the representation."""
        return kind_of(self.representation, self.embedding)

    @property
    def views(self) -> list[int]:
        """The view of a context that each target reads, where views have no members of their own."""
        return self.kind.views(self.shape)

    @property
    def forget_used(self) -> str:
        """The forgetting: as given, else "never" with an embedding, intervals or refits, and "auto" without."""
        refitted = self.refit not in (None, "never")
        kept = self.kind.replaces or self.exploration.rule != INDEX or refitted
        return self.forget if self.forget is not None else "never" if kept else "auto"

    @property
    def refit_used(self) -> str:
        """When estimates are refitted exactly: "never" with an embedding, trees, forgetting or link "auto"."""
        if self.kind.trains or self.link == AUTO_LINK or self.forget_used != "never":
            return "never"
        return "doubling" if self.refit is None else self.refit

    @property
    def members(self) -> list[Member]:
        """The members of the mixture by which each target is estimated."""
        kind, shape = self.kind, self.shape
        return members_of(
            self.forget_used,
            None if kind.replaces else len(kind.view_names(shape)),
            values="values" not in self.without,
            ranks=self.has_ranks,
            rank_weight=RANK_WEIGHT if self.confidence is None else CONFIDENT_RANK_WEIGHT,
            stacked=kind.has_prior(shape),
        )

    @property
    def ridge_used(self) -> float:
        """The ridge: as given, else the larger default of the two links."""
        return self.ridge_with(self.first_link)

    def ridge_with(self, link: Link) -> float:
        """Return the ridge with this link of the rewards; a prior needs more than least squares."""
        if self.ridge is None and self.confidence is not None:
            return PRIOR_RIDGE
        return max(link.ridge, link_named(self.cost_link).ridge) if self.ridge is None else self.ridge

    @property
    def scale_used(self) -> float:
        """The width in units of the noise: as given, else the default of the link or of intervals."""
        return self.scale_with(self.first_link)

    def scale_with(self, link: Link) -> float:
        """Return the width in units of the noise with this link of the rewards."""
        given, rule = self.exploration.scale, self.exploration.rule
        return given if given is not None else link.scale if rule == INDEX else INTERVAL_SCALE

    @property
    def has_new_defaults(self) -> bool:
        """Whether the parts that came after November 2026 apply: not with an embedding or with intervals."""
        return self.defaults != NOVEMBER_2026 and not self.kind.replaces and self.exploration.rule == INDEX

    @property
    def has_auto_link(self) -> bool:
        """Whether the link follows from the rewards: they are in [0, 1], and everything else has the identity link."""
        unit = isinstance(self.reward_range, Sequence) and tuple(self.reward_range) == (0.0, 1.0)
        refitted = self.refit is not None and not (isinstance(self.refit, str) and self.refit == "never")
        return self.has_new_defaults and unit and self.cost_link == "identity" and not refitted

    @property
    def first_link(self) -> Link:
        """The link of the rewards at the start."""
        return link_named("logistic" if self.link == AUTO_LINK else self.link)

    @property
    def has_ranks(self) -> bool:
        """Whether there is a rank view."""
        return self.has_new_defaults and "ranks" not in self.without

    @property
    def width_member(self) -> int:
        """The member whose spreads are the widths: the one that forgets nothing, and reads ranks if there are any.

        Ranks are bounded, so that an outlier cannot make all other widths 0.
        """
        if not self.has_ranks:
            return 0
        views = [member.view or 0 for member in self.members]
        return views.index(max(views))

    @property
    def noise_samples(self) -> float:
        """The pseudo-samples of the noise prior; 0 if there is none."""
        bounded = all(math.isfinite(bound) for bound in self.reward_bounds)
        return NOISE_SAMPLES if self.has_new_defaults and bounded and "noise prior" not in self.without else 0.0

    @property
    def tests_drifts(self) -> bool:
        """Whether drifts are reported by a test: it needs the range of the rewards, else weights report them."""
        return self.has_new_defaults and all(math.isfinite(bound) for bound in self.reward_bounds)

    def noise_variance_with(self, link: Link) -> float:
        """Return the variance of a pseudo-sample: in units of μ' for a probability, else that of a fair coin."""
        if self.noise_samples == 0.0 or link.is_probability:
            return 1.0
        return (self.reward_bounds[1] - self.reward_bounds[0]) ** 2 / 4.0

    @property
    def explores_free(self) -> bool:
        """Whether unspent budget is used to explore: not if the exploration is given, nor without a price."""
        return self.catches_up and self.exploration == Exploration() and "free exploration" not in self.without

    @property
    def catches_up(self) -> bool:
        """Whether prices fall while spending is far behind an even pace: if a price is solved at all."""
        limited = any(math.isfinite(budget.total) for budget in self.budget.values())
        return self.has_new_defaults and limited and self.pacing.kind == "resolve"

    @property
    def budgets(self) -> Budgets:
        """The totals and horizons as arrays, for the pacing."""
        given = list(self.budget.values())
        horizons = [math.inf if budget.horizon is None else budget.horizon for budget in given]
        return Budgets(np.array([float(budget.total) for budget in given]), np.array(horizons, dtype=np.float64))

    @property
    def is_timed(self) -> bool:
        """Whether tasks need a time: a budget has an end or a period."""
        return any(budget.is_timed for budget in self.budget.values())

    @staticmethod
    def timing_of(budget: Budget) -> int:
        """Return the constant of the compiled core for the timing of a budget: horizon, end or period."""
        kind = "renews" if budget.every is not None else "until" if budget.until is not None else "horizon"
        return int(CONSTANTS[kind])

    @property
    def strategy(self) -> Strategy:
        """The strategy of the pacing: initial state and reactions."""
        return Renewing() if self.is_timed else self.pacing.strategy

    @property
    def remembered_contexts(self) -> int:
        """How many of the latest contexts the price may be solved for; those of two periods, if there are periods."""
        return self.memory if self.is_timed else self.pacing.window

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, for the state file."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        embedding = None if self.embedding is None else self.embedding.to_dict()
        budgets = {name: asdict(each) for name, each in self.budget.items()}
        plain = {"pacing": self.pacing.to_dict(), "exploration": asdict(self.exploration), "budget": budgets}
        return given | plain | {"embedding": embedding}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Settings":
        """Restore settings from `to_dict()`; files older than `defaults` have those of November 2026."""
        return cls(
            **{
                "defaults": NOVEMBER_2026,
                **plain,
                "without": tuple(plain.get("without", ())),
                "experts": tuple(plain["experts"]),
                "reward_range": tuple(plain["reward_range"]),
                "pacing": Pacing.from_dict(plain["pacing"]),
                "exploration": Exploration.from_dict(plain["exploration"]),
                "embedding": None if plain["embedding"] is None else embedding_from(plain["embedding"]),
                "budget": {
                    name: Budget(**each)
                    for name, each in plain["budget"].items()  # older files have fewer fields
                },
            }
        )


def as_n_features(n_features: int | None, encoder: Encoder | None) -> int:
    """Return the length of a context vector: as given, or that of the encoder. One of the two must be given."""
    if n_features is None and encoder is None:
        raise expected("n_features", "Deferrer", "given, or else an encoder", n_features)
    if n_features is not None and encoder is not None:
        raise expected("n_features", "Deferrer", "left out where an encoder is given, which says it", n_features)
    if encoder is not None and not isinstance(encoder, Encoder):
        raise expected("encoder", "Deferrer", "an Encoder", encoder)
    return encoder.n_features if encoder is not None else cast("int", n_features)


def as_budgets(budget: Budget | Mapping[str, Budget] | None) -> dict[str, Budget]:
    """Return the budgets by resource; a single resource is called "cost".

    >>> as_budgets(None)
    {'cost': Budget(total=inf, horizon=None, max_cost=None)}
    """
    if isinstance(budget, Mapping):
        return dict(budget)
    if not (budget is None or isinstance(budget, Budget)):
        raise expected("budget", "Deferrer", "a Budget, such as Budget(100, horizon=1_000), or one by resource", budget)
    return {"cost": Budget.unlimited() if budget is None else budget}


def as_experts(experts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the experts; raise for a single string, whose letters would be taken for names."""
    if isinstance(experts, str) or not isinstance(experts, Sequence):
        raise expected("experts", "Deferrer", "a list of names", experts)
    return tuple(experts)


def as_confidence(given: int | str | None, encoder: Encoder | None) -> int | None:
    """Return the index of the model's confidence in a context vector: as given, by name, or that of the encoder."""
    name = encoder.confidence if given is None and encoder is not None else given
    if encoder is None or name is None:
        if isinstance(name, str):
            raise expected("confidence", "Deferrer", "an index, unless there is an encoder", name)
        return name
    if name not in encoder.numbers:
        raise expected("confidence", "Deferrer", f"one of the numbers {', '.join(encoder.numbers)}", name)
    return encoder.names.index(name)


def as_exploration(exploration: float | Exploration | None) -> Exploration:
    """Return an exploration, which may be given by its scale alone."""
    if exploration is None:
        return Exploration()
    return exploration if isinstance(exploration, Exploration) else Exploration(scale=exploration)


def as_pacing(pacing: str | Pacing) -> Pacing:
    """Return a pacing, which may be given by its kind alone."""
    return pacing if isinstance(pacing, Pacing) else Pacing(kind=pacing)


def choose_representation(
    given: str | None, encoder: Encoder | None, embedding: Embedding | None, exploration: Exploration, cost_link: str
) -> str:
    """Return the representation to use: as given, else "auto" for named features if LightGBM is installed.

    "auto" without LightGBM becomes "linear" with a warning, whose `stacklevel` is that of a caller of `Deferrer`.
    """
    wanted = given if isinstance(given, str) and given in REPRESENTATIONS else BEST
    absent = REPRESENTATIONS[wanted].find_missing()
    if given == wanted and absent:
        warnings.warn(
            f"Estimates will be linear, because {join_names(absent)} {'are' if absent[1:] else 'is'} missing:"
            " pip install 'deferkit[trees]'.",
            MissingTreesWarning,
            stacklevel=3,
        )
        return "linear"
    if given is not None:
        return given
    supported = embedding is None and exploration.rule == INDEX and cost_link == "identity"
    return BEST if encoder is not None and supported and not absent else "linear"


def check_encoder_memory(settings: Settings, encoder: Encoder | None) -> None:
    """Raise unless the memory holds all rows that come before the encoder's scales are frozen."""
    least = max(settings.warm_up_steps, FREEZE_AFTER)
    if encoder is not None and settings.memory < least:
        what = f"at least {least}, the rows before the encoder's scales are frozen"
        raise expected("memory", "Deferrer", what, settings.memory)


def unaffordable_reviews(budgets: Mapping[str, Budget]) -> str | None:
    """Return a sentence if a budget is smaller than the hold of one review; None for 0, where that is meant.

    >>> unaffordable_reviews({"cost": Budget(0, horizon=10, max_cost=1)})
    >>> unaffordable_reviews({"cost": Budget(1, every="day", carry=1, max_cost=2)})
    """
    for name, budget in budgets.items():
        cap = min(budget.max_cost.values()) if isinstance(budget.max_cost, Mapping) else budget.max_cost
        caps = {"max_cost": cap, "limit": budget.limit, "hold": budget.hold}
        known = {what: cap for what, cap in caps.items() if cap is not None and not isinstance(cap, str)}
        least = min(known, key=lambda what: known[what], default=None)
        most = budget.total * (1.0 + budget.carry) if budget.total else 0.0
        if least is not None and budget.hold != AUTO and 0 < most < known[least]:
            total = f"what {name} gets in a period" if budget.every is not None else f"the total of {name}"
            carried = " and can carry over" if budget.carry else ""
            return (
                f"Nobody can be asked: each deferral reserves the {least} of {known[least]:g} until its cost is"
                f" known, and {total}{carried} is {most:g}. Raise the total or lower the {least}."
            )
    return None


def warn_if_unaffordable(budgets: Mapping[str, Budget]) -> None:
    """Warn if a budget is smaller than its `max_cost`, with the `stacklevel` of a caller of `Deferrer`."""
    if sentence := unaffordable_reviews(budgets):
        warnings.warn(sentence, UnaffordableReviewWarning, stacklevel=3)


def warn_if_below_guarantee(n_features: int, budget: Budget) -> None:
    """Warn if a budget is smaller than the paper's corollary requires: B > √d·T^¾."""
    least = math.sqrt(n_features) * (budget.horizon or 0) ** 0.75
    if budget.total < least:
        warnings.warn(
            f"The paper's guarantee requires B > √d·T^¾ = {least:,.0f}; the budget of {budget.total:,.0f} is smaller.",
            AssumptionWarning,
            stacklevel=3,
        )
