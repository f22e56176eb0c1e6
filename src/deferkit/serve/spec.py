"""What a policy is made of: the body of the call that creates one, and what its log begins with."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from deferkit.errors import InvalidArgument
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import INDEX, INTERVAL, Exploration
from deferkit.learn.links import LINKS
from deferkit.learn.pacing import PACINGS
from deferkit.serve.money import LARGEST_AMOUNT, to_micro
from deferkit.types import LARGEST, MODEL, Budget

# in Python $ alone would let a newline through at the end
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?!\n)$"
NO_CONTROL = r"^[^\u0000-\u001f\u007f-\u009f\ud800-\udfff]*(?!\n)$"
Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, description="letters, digits, . _ -")]
TaskId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=NO_CONTROL,
        description="your own id of a task: 1 to 128 characters, none of them control characters",
    ),
]
FeatureName = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Finite = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Seats = Annotated[int, msgspec.Meta(ge=1, le=16)]
if TYPE_CHECKING:
    LinkName: TypeAlias = str
    PacingName: TypeAlias = str
else:  # the names of the registries
    LinkName = Literal[tuple(LINKS)]
    PacingName = Literal[tuple(PACINGS)]
MOST_NUMBERS = 50_000_000  # that one policy may keep in memory: 400 MB


class BudgetSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budget of one resource. Without a total it has no end; with one it needs a horizon and a max_cost."""

    total: Annotated[float, msgspec.Meta(ge=0, le=LARGEST_AMOUNT)] | None = None
    horizon: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1, description="tasks that it is to last for")] | None = None
    max_cost: (
        Annotated[
            float, msgspec.Meta(gt=0, le=LARGEST_AMOUNT, description="held for each decision until its cost is known")
        ]
        | None
    ) = None


class FeatureSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named features. A category has its levels, or how many of them to take as they come."""

    numbers: Annotated[list[FeatureName], msgspec.Meta(max_length=1000)] = []
    categories: Annotated[
        dict[
            FeatureName,
            Annotated[list[str], msgspec.Meta(max_length=1000)] | Annotated[int, msgspec.Meta(ge=1, le=1000)],
        ],
        msgspec.Meta(max_length=1000),
    ] = {}


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """A policy: who decides, on what, for how much, and what happens to tasks that wait."""

    name: Name
    features: Annotated[int, msgspec.Meta(ge=1, le=2000)] | FeatureSpec
    budget: Annotated[dict[Name, BudgetSpec], msgspec.Meta(min_length=1, max_length=8, description="by resource")]
    experts: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=32)] = msgspec.field(
        default_factory=lambda: ["human"]
    )
    link: LinkName = "identity"
    cost_link: LinkName = "identity"
    pacing: PacingName = "resolve"
    exploration: Annotated[float, msgspec.Meta(ge=0, le=1e6, description="width of intervals, in noise")] | None = None
    rule: Literal["index", "interval"] | msgspec.UnsetType = msgspec.UNSET
    """How what is not known is explored; policies from before there was a rule have none, and intervals."""
    explore_floor: Annotated[float, msgspec.Meta(ge=0, le=1, description="share decided at random, logged")] = 0.0
    warm_up: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] | None = None
    reward_range: tuple[Finite, Finite] = (0.0, 1.0)
    memory: Annotated[int, msgspec.Meta(ge=1000, le=1_000_000, description="decisions that can be learned from")] = (
        10_000
    )
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0
    embedding: dict[str, Any] | None = None
    learning_window_s: (
        Annotated[float, msgspec.Meta(gt=0, le=1e9, description="later outcomes are booked, not learned")] | None
    ) = None
    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=1e9, description="how long a task may wait")] | None = None
    after_deadline: Literal["model", "wait"] = "model"
    lease_s: Seconds = 300.0
    reviewers: Annotated[int, msgspec.Meta(ge=1, le=16, description="people for each task")] = 1

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources."""
        return tuple(self.budget)

    @property
    def deciders(self) -> tuple[str, ...]:
        """The model and the experts."""
        return (MODEL, *self.experts)

    def with_rule(self) -> "PolicySpec":
        """Return the policy as it is made today: with a rule."""
        return msgspec.structs.replace(self, rule=INDEX) if self.rule is msgspec.UNSET else self

    def as_before(self, before: "PolicySpec") -> "PolicySpec":
        """Return the policy with the defaults that `before` was made with, if that was before there was a rule."""
        if before.rule is not msgspec.UNSET or self.rule is not msgspec.UNSET:
            return self.with_rule()
        given = before.exploration if self.exploration is None else self.exploration
        return msgspec.structs.replace(self, exploration=given)


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be changed of a policy; the rest is what it has learned with. Budgets have a call of their own."""

    learning_window_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    deadline_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    after_deadline: Literal["model", "wait"] | msgspec.UnsetType = msgspec.UNSET
    lease_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    reviewers: Seats | msgspec.UnsetType = msgspec.UNSET

    def of(self, spec: PolicySpec) -> PolicySpec:
        """Return the policy with these changes."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(spec, **{k: v for k, v in given.items() if v is not msgspec.UNSET})


def check_size(spec: PolicySpec, d: int) -> None:
    """Raise if a policy of d features would take more memory than one may: anyone with a key can ask for one.

    A learner keeps two d×d matrices for each reward and each cost, and the contexts that it remembers.
    """
    models = len(spec.deciders) + len(spec.experts) * len(spec.budget)
    numbers = 2 * d * d * models + d * spec.memory
    if numbers > MOST_NUMBERS:
        raise InvalidArgument(
            f"With {d:,} features, {len(spec.experts)} experts and {len(spec.budget)} resources the policy would keep"
            f" {numbers:,} numbers; the most is {MOST_NUMBERS:,}. Take fewer of them, or a shorter memory."
        )


def learner_of(spec: PolicySpec) -> Deferrer:
    """Return the learner of a policy that has seen nothing yet; raise if the policy makes no sense.

    >>> spec = PolicySpec(name="a", features=2, budget={"minutes": BudgetSpec(total=10, horizon=100, max_cost=1)})
    >>> learner_of(spec).summary().total
    10.0
    """
    if spec.embedding is not None:
        raise InvalidArgument(
            "The service has no embeddings yet: leave 'embedding' out. (The library has them: deferkit.Deferrer.)"
        )
    budgets = {}
    for name, each in spec.budget.items():
        if each.total is not None and (each.horizon is None or each.max_cost is None):
            raise InvalidArgument(
                f"The budget of {name} has a total, so it needs a horizon (tasks that it is to last for)"
                " and a max_cost (what is held for each decision until its cost is known)."
            )
        if each.total is not None:
            to_micro(f"total of {name}", each.total)
        if each.max_cost is not None:
            to_micro(f"max_cost of {name}", each.max_cost)
        unlimited = each.total is None
        budgets[name] = Budget(
            float("inf") if unlimited else each.total,  # type: ignore[arg-type]
            horizon=None if unlimited else each.horizon,
            max_cost=each.max_cost,
        )
    given = spec.features
    encoder = Encoder(numbers=given.numbers, categories=given.categories) if isinstance(given, FeatureSpec) else None
    check_size(spec, encoder.n_features if encoder is not None else given)  # type: ignore[arg-type]
    return Deferrer(
        n_features=None if encoder is not None else given,  # type: ignore[arg-type]
        encoder=encoder,
        budget=budgets,
        experts=spec.experts,
        link=spec.link,
        cost_link=spec.cost_link,
        pacing=spec.pacing,
        exploration=Exploration(scale=spec.exploration, rule=INTERVAL if spec.rule is msgspec.UNSET else spec.rule),
        warm_up=spec.warm_up,
        explore_floor=spec.explore_floor,
        reward_range=spec.reward_range,
        memory=spec.memory,
        seed=spec.seed,
    )
