"""Policy specifications, their changes, and times in requests."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from deferkit.errors import InvalidArgument
from deferkit.learn.embed import REPRESENTATIONS, embedding_from
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.exploration import INDEX
from deferkit.learn.links import AUTO_LINK, LINKS
from deferkit.learn.pacing import PACINGS
from deferkit.learn.settings import DEFAULTS, FORGETS, NOVEMBER_2026
from deferkit.serve.domain.accounts import MAX_AMOUNT
from deferkit.serve.domain.review import ReviewDocument
from deferkit.types import LARGEST, MODEL

EXPECTED = "seconds since 1970, or a date and time with an offset such as '2026-12-31T18:00:00+01:00' or '…Z'"
WithOffset = Annotated[datetime, msgspec.Meta(tz=True)]
if TYPE_CHECKING:
    RequestTime: TypeAlias = float
else:  # what a request may have; `keep_seconds` leaves no text
    RequestTime = float | Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


def seconds_of(name: str, text: str) -> float:
    """Return a time as seconds since 1970.

    Args:
        name: The field, for the error message.
        text: A date and time in the form of RFC 3339, with an offset.

    Raises:
        ValueError: If it is in another form, or has no offset.

    >>> seconds_of("until", "1970-01-02T01:00:00+01:00")
    86400.0
    """
    try:
        return msgspec.convert(text, WithOffset).timestamp()
    except msgspec.ValidationError:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise ValueError(f"Expected {EXPECTED} for `{name}`, got {shown!r}") from None


def keep_seconds(struct: msgspec.Struct, *fields: str) -> None:
    """Replace texts in fields of type `RequestTime` by seconds; to be called in `__post_init__`."""
    for field in fields:
        if isinstance(given := getattr(struct, field), str):
            msgspec.structs.force_setattr(struct, field, seconds_of(field, given))


# in Python $ alone would let a newline through at the end
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?!\n)$"
NO_CONTROL = r"^[^\u0000-\u001f\u007f-\u009f\ud800-\udfff]*(?!\n)$"
Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, description="Letters, digits, . _ -")]
TaskId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=NO_CONTROL,
        description="The caller's own id of the task: 1 to 128 characters, without control characters.",
    ),
]
FeatureName = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Finite = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Seats = Annotated[int, msgspec.Meta(ge=1, le=16)]
if TYPE_CHECKING:
    LinkName: TypeAlias = str
    RewardLinkName: TypeAlias = str
    DefaultsName: TypeAlias = str
    PacingName: TypeAlias = str
    ForgetName: TypeAlias = str
    RepresentationName: TypeAlias = str
else:  # the names of the registries
    LinkName = Literal[tuple(LINKS)]
    RewardLinkName = Literal[(*LINKS, AUTO_LINK)]
    DefaultsName = Literal[DEFAULTS]
    PacingName = Literal[tuple(PACINGS)]
    ForgetName = Literal[FORGETS]
    RepresentationName = Literal[tuple(REPRESENTATIONS)]
# defaults of policies that were created before these settings existed: their logs do not have them
LEGACY_DEFAULTS: dict[str, Any] = {
    "link": "identity",
    "forget": "never",
    "representation": "linear",
    "outliers": "keep",
    "defaults": NOVEMBER_2026,
    "ranks": True,
}
# settings that an upgrade may change
LEARNING_SETTINGS = ("defaults", "link", "rule", "exploration", "forget", "representation", "ranks", "confidence")


class BudgetSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budget of one resource. Without a total it is unlimited.

    With a total it needs one of `horizon`, `until` and `every`, and a `max_cost` or a `limit`.
    """

    total: (
        Annotated[
            float,
            msgspec.Meta(ge=0, le=MAX_AMOUNT, description="The total amount; with `every`, the amount of each period."),
        ]
        | None
    ) = None
    horizon: (
        Annotated[
            int, msgspec.Meta(ge=1, le=2**53 - 1, description="The number of tasks that the budget must last for.")
        ]
        | None
    ) = None
    max_cost: (
        Annotated[
            float,
            msgspec.Meta(gt=0, le=MAX_AMOUNT, description="The amount held for each decision until its cost is known."),
        ]
        | None
    ) = None
    max_reported_cost: (
        Annotated[
            float,
            msgspec.Meta(
                gt=0,
                le=MAX_AMOUNT,
                description="A reported cost above this ceiling is not booked and not learned until a correction. 20"
                " times max_cost by default; null disables it.",
            ),
        ]
        | msgspec.UnsetType
        | None
    ) = msgspec.UNSET
    until: (
        Annotated[
            RequestTime,
            msgspec.Meta(
                description="The end of the budget, instead of a horizon: seconds since 1970, or a time with an offset"
                " such as '2026-12-31T18:00:00+01:00', which is stored as seconds."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    every: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=32,
                description="The period of renewal, instead of a horizon: a duration such as '7d', '12h' or '30min', or"
                " a calendar 'day', 'week' or 'month'.",
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    zone: (
        Annotated[str, msgspec.Meta(max_length=64, description="Time zone of calendar periods. UTC by default.")]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    start: (
        Annotated[
            RequestTime,
            msgspec.Meta(
                description="The start of the first period: seconds since 1970, or a time with an offset. By default"
                " the time of the first task, or the start of its calendar period."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    carry: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, description="The number of allowances that may be carried over. 0 by default; null carries all."
            ),
        ]
        | msgspec.UnsetType
        | None
    ) = msgspec.UNSET
    hold: (
        Annotated[
            float,
            msgspec.Meta(
                gt=0,
                le=MAX_AMOUNT,
                description="The amount held for a review that can be stopped, instead of max_cost. 'auto' is about"
                " three times the mean cost.",
            ),
        ]
        | Literal["auto"]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    limit: (
        Annotated[float, msgspec.Meta(gt=0, le=MAX_AMOUNT, description="The cost at which every review is stopped.")]
        | msgspec.UnsetType
    ) = msgspec.UNSET

    def __post_init__(self) -> None:
        """Keep times as seconds."""
        keep_seconds(self, "until", "start")

    @property
    def is_timed(self) -> bool:
        """Whether the budget renews or has an end, so that tasks have a time."""
        return self.until is not msgspec.UNSET or self.every is not msgspec.UNSET

    @property
    def can_be_stopped(self) -> bool:
        """Whether reviews can be stopped, so that less than `max_cost` is held for them."""
        return self.hold is not msgspec.UNSET or self.limit is not msgspec.UNSET

    @property
    def least_hold(self) -> float | None:
        """The free amount that one more review needs; None where any amount is enough."""
        if self.hold == "auto":
            return None
        known = [each for each in (self.hold, self.limit, self.max_cost) if isinstance(each, (int, float))]
        return min(known, default=None)

    def with_defaults_of(self, before: "BudgetSpec | None") -> "BudgetSpec":
        """Return this budget with the `max_reported_cost` of an existing one, if it leaves that to the service."""
        if before is None or self.max_reported_cost is not msgspec.UNSET:
            return self
        return msgspec.structs.replace(self, max_reported_cost=before.max_reported_cost)


class FeatureSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named features. A category has its levels, or a maximum number of levels to accept."""

    numbers: Annotated[list[FeatureName], msgspec.Meta(max_length=1000)] = []
    categories: Annotated[
        dict[
            FeatureName,
            Annotated[list[str], msgspec.Meta(max_length=1000)] | Annotated[int, msgspec.Meta(ge=1, le=1000)],
        ],
        msgspec.Meta(max_length=1000),
    ] = {}


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Settings of a policy: features, experts, budgets, learning, deadlines, review."""

    name: Name
    features: Annotated[int, msgspec.Meta(ge=1, le=2000)] | FeatureSpec
    budget: Annotated[dict[Name, BudgetSpec], msgspec.Meta(min_length=1, max_length=8, description="By resource.")]
    experts: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=32)] = msgspec.field(
        default_factory=lambda: ["human"]
    )
    link: (
        Annotated[
            RewardLinkName,
            msgspec.Meta(
                description="Link function of the rewards. 'auto' (default) is logistic while all rewards are 0 or 1,"
                " and switches to 'identity' at the first other reward. Where that is impossible, the default is"
                " 'identity': with another reward_range, a logistic cost_link, rule 'interval' or defaults '2026.11'."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    cost_link: LinkName = "identity"
    pacing: PacingName = "resolve"
    exploration: (
        Annotated[
            float, msgspec.Meta(ge=0, le=1e6, description="Width of confidence intervals, in units of the noise.")
        ]
        | None
    ) = None
    rule: Literal["index", "interval"] | msgspec.UnsetType = msgspec.UNSET
    """Exploration rule. Unset for policies created before this field existed; they use "interval"."""
    forget: (
        Annotated[
            ForgetName,
            msgspec.Meta(
                description="How fast old observations are discounted: 'auto' (default) adapts to prediction errors,"
                " 'never' keeps all."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    representation: (
        Annotated[
            RepresentationName,
            msgspec.Meta(
                description="Reward model. 'auto' combines a linear model and boosted trees, weighted by prediction"
                " error. Default: 'auto' if LightGBM is installed and the policy is not too large, otherwise 'linear'."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    outliers: (
        Annotated[
            Literal["clip", "refuse", "keep"],
            msgspec.Meta(
                description="Handling of a feature value many times larger than all before: 'clip' to the scale seen so"
                " far (default), 'refuse' with 422, or 'keep'."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    explore_floor: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="The share of tasks that are decided at random.")
    ] = 0.0
    warm_up: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] | None = None
    reward_range: tuple[Finite, Finite] = (0.0, 1.0)
    memory: Annotated[
        int,
        msgspec.Meta(
            ge=1000, le=1_000_000, description="The number of latest decisions that accept outcomes for learning."
        ),
    ] = 10_000
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0
    embedding: (
        Annotated[
            dict[str, Any],
            msgspec.Meta(
                description="Settings of a learned representation that replaces 'representation': its `kind` (such as"
                " 'neural', 'trees', 'gradient', or that of an installed plug-in) and the arguments that differ from"
                " their defaults. It keeps at most `memory` tasks to retrain on, by default as many as the policy."
            ),
        ]
        | None
    ) = None
    learning_window_s: (
        Annotated[float, msgspec.Meta(gt=0, le=1e9, description="Later outcomes are booked but not learned.")] | None
    ) = None
    deadline_s: (
        Annotated[float, msgspec.Meta(gt=0, le=1e9, description="The time that a task may wait, in seconds.")] | None
    ) = None
    after_deadline: Literal["model", "wait"] = "model"
    lease_s: Seconds = 300.0
    reviewers: Annotated[int, msgspec.Meta(ge=1, le=16, description="Reviewers per task.")] = 1
    review: Annotated[ReviewDocument, msgspec.Meta(description="The review document.")] | msgspec.UnsetType | None = (
        msgspec.UNSET
    )
    retention_s: (
        Annotated[
            float,
            msgspec.Meta(
                gt=0,
                le=1e9,
                description="Seconds after which the payload and model answer of an ended task are erased. 30 days by"
                " default; null: never.",
            ),
        ]
        | msgspec.UnsetType
        | None
    ) = msgspec.UNSET
    defaults: (
        Annotated[
            DefaultsName,
            msgspec.Meta(
                description="Version of the default rule, '2026.12' by default. Unset for policies created before this"
                " field existed; they use '2026.11'."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    ranks: (
        Annotated[
            bool,
            msgspec.Meta(
                description="Whether estimates also read the rank of each feature among the first 100 tasks. True by"
                " default, unless the policy would be too large. No effect with defaults '2026.11'."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    confidence: (
        Annotated[int, msgspec.Meta(ge=0, description="The index in the context, for plain vectors.")]
        | FeatureName
        | msgspec.UnsetType
    ) = msgspec.UNSET
    """The feature that is the model's own confidence, by name or by index. None by default."""

    @property
    def embedding_used(self) -> Embedding | None:
        """The settings of the embedding; None if there is none."""
        return None if self.embedding is None else embedding_from(self.embedding)

    def complete_embedding(self) -> dict[str, Any] | None:
        """Return the settings of the embedding with their defaults, and a bounded memory."""
        if (made := self.embedding_used) is None:
            return None
        if made.memory is None:
            made = embedding_from({**made.to_dict(), "memory": self.memory})
        stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made.to_dict()))
        return stored

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources."""
        return tuple(self.budget)

    @property
    def is_timed(self) -> bool:
        """Whether a budget renews or has an end."""
        return any(budget.is_timed for budget in self.budget.values())

    @property
    def can_be_stopped(self) -> bool:
        """Whether reviews can be stopped, so that less than `max_cost` of some resource is held for them."""
        return any(budget.can_be_stopped for budget in self.budget.values())

    @property
    def deciders(self) -> tuple[str, ...]:
        """The model and the experts."""
        return (MODEL, *self.experts)

    def _effective_value(self, name: str) -> Any:
        given = getattr(self, name)
        return LEGACY_DEFAULTS[name] if given is msgspec.UNSET else given

    @property
    def link_used(self) -> str:
        """The `link` in effect."""
        return str(self._effective_value("link"))

    @property
    def forget_used(self) -> str:
        """The `forget` setting in effect."""
        return str(self._effective_value("forget"))

    @property
    def representation_used(self) -> str:
        """The `representation` in effect."""
        return str(self._effective_value("representation"))

    @property
    def outliers_used(self) -> str:
        """The `outliers` setting in effect."""
        return str(self._effective_value("outliers"))

    @property
    def defaults_used(self) -> str:
        """The version of the default rule in effect."""
        return str(self._effective_value("defaults"))

    @property
    def ranks_used(self) -> bool:
        """The `ranks` setting in effect."""
        return bool(self._effective_value("ranks"))

    @property
    def learner_cuts_outliers(self) -> bool:
        """Whether the learner itself cuts outliers and takes absurd values as missing: as its rank tables tell."""
        return self.defaults_used != NOVEMBER_2026 and self.ranks_used

    @property
    def review_used(self) -> ReviewDocument | None:
        """The review document. None: answers are free-form, and the model's answer is shown."""
        return None if self.review is msgspec.UNSET else self.review

    @property
    def retention_used(self) -> float | None:
        """Seconds after which the payload and model answer are erased; None: never."""
        return None if self.retention_s is msgspec.UNSET else self.retention_s

    def learning_as(self, other: "PolicySpec") -> "PolicySpec":
        """Return this specification with the settings of another one that its estimates depend on."""
        return msgspec.structs.replace(self, **{name: getattr(other, name) for name in LEARNING_SETTINGS})

    def with_defaults_of(self, before: "PolicySpec") -> "PolicySpec":
        """Return this specification with the defaults that an existing policy got, where it leaves them open.

        Defaults depend on the version and on installed libraries; a repeated creation must not conflict for that.
        """
        taken: dict[str, Any] = {
            name: getattr(before, name)
            for name in LEGACY_DEFAULTS
            if getattr(self, name) is msgspec.UNSET
            or (getattr(before, name) is msgspec.UNSET and getattr(self, name) == LEGACY_DEFAULTS[name])
        }
        if self.link is msgspec.UNSET and before.link not in (AUTO_LINK, LEGACY_DEFAULTS["link"]):
            del taken["link"]  # no version has another default, so that this is another policy
        taken["budget"] = {name: each.with_defaults_of(before.budget.get(name)) for name, each in self.budget.items()}
        if self.retention_s is msgspec.UNSET:
            taken["retention_s"] = before.retention_s
        if self.embedding is not None and before.embedding is not None:
            given = msgspec.structs.replace(self, embedding={**before.embedding, **self.embedding})
            taken["embedding"] = given.complete_embedding()
        if self.rule is msgspec.UNSET and before.rule is not msgspec.UNSET:
            taken["rule"] = INDEX
        if self.rule is before.rule is msgspec.UNSET and self.exploration is None:
            taken["exploration"] = before.exploration
        return msgspec.structs.replace(self, **taken)


class BudgetPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new horizon, end or allowance of a budget, whichever it was created with."""

    horizon: (
        Annotated[
            int, msgspec.Meta(ge=1, le=2**53 - 1, description="The number of tasks, counted from the first task.")
        ]
        | None
    ) = None
    until: (
        Annotated[
            RequestTime,
            msgspec.Meta(
                description="The new end: seconds since 1970, or a time with an offset such as"
                " '2026-12-31T18:00:00+01:00'."
            ),
        ]
        | None
    ) = None
    allowance: (
        Annotated[
            float, msgspec.Meta(ge=0, le=MAX_AMOUNT, description="The amount of each period, from the next renewal on.")
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        """Keep the end as seconds."""
        keep_seconds(self, "until")


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a policy that may be changed. Budget totals have their own route."""

    budget: Annotated[dict[Name, BudgetPlan], msgspec.Meta(max_length=8, description="By resource.")] = {}

    learning_window_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    deadline_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    after_deadline: Literal["model", "wait"] | msgspec.UnsetType = msgspec.UNSET
    lease_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    reviewers: Seats | msgspec.UnsetType = msgspec.UNSET
    review: ReviewDocument | msgspec.UnsetType | None = msgspec.UNSET
    retention_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET

    def of(self, spec: PolicySpec) -> PolicySpec:
        """Return the policy with these changes."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "budget"}
        given["budget"] = spec.budget | {
            name: with_plan(name, spec.budget.get(name), plan) for name, plan in self.budget.items()
        }
        return msgspec.structs.replace(spec, **{k: v for k, v in given.items() if v is not msgspec.UNSET})


def with_plan(name: str, budget: BudgetSpec | None, plan: BudgetPlan) -> BudgetSpec:
    """Return a budget with another horizon, end or allowance; raise if it has none of that kind."""
    if budget is None:
        raise InvalidArgument(f"There is no resource {name!r}.")
    kind = "horizon" if not budget.is_timed else "until" if budget.every is msgspec.UNSET else "allowance"
    for field in plan.__struct_fields__:
        if getattr(plan, field) is not None and (field != kind or budget.total is None):
            has = "no end" if budget.total is None else {"allowance": "every"}.get(kind, kind)
            raise InvalidArgument(f"The budget of {name} has {has}, and no {field} to change.")
    new = getattr(plan, kind)
    if new is None:
        return budget
    if kind == "horizon":
        return msgspec.structs.replace(budget, horizon=new)
    return msgspec.structs.replace(budget, **{"total" if kind == "allowance" else kind: float(new)})
