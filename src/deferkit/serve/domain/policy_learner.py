"""The learner of a policy: default settings of new policies, and limits on their size."""

import math
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from deferkit.errors import InvalidArgument, MissingExtra
from deferkit.extras import REQUIREMENTS, join_names, needs
from deferkit.learn import embed as registry
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.embed import REPRESENTATIONS
from deferkit.learn.embed.representation import RepresentationKind
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import INDEX, INTERVAL, Exploration
from deferkit.learn.initial_state import count_numbers
from deferkit.learn.links import AUTO_LINK
from deferkit.learn.pacing import Pacing
from deferkit.learn.settings import (
    BEST,
    DECEMBER_2026,
    NOVEMBER_2026,
    Settings,
    as_confidence,
    unaffordable_reviews,
)
from deferkit.periods import show_time
from deferkit.serve.domain.accounts import MAX_AMOUNT, MICRO, to_micro
from deferkit.serve.domain.review import check_document
from deferkit.serve.domain.spec import LEGACY_DEFAULTS, BudgetSpec, FeatureSpec, PolicySpec
from deferkit.types import Budget

CEILING_FACTOR = 20  # default max_reported_cost, in units of max_cost: higher costs are likely typing errors
RETENTION_S = 30 * 86_400.0  # default retention of payloads, after their tasks have ended
LIMITED_BUDGET_FIELDS = ("until", "every", "zone", "start", "carry", "hold", "limit")
BYTES_OF_A_NUMBER = 8
MAX_RETRAINING = 100_000_000_000  # multiplications of a retraining: about two minutes
MAX_NUMBERS = 50_000_000  # doubles that one policy may keep in memory: 400 MB


class Choice(NamedTuple):
    """A combination of learning defaults."""

    forget: str
    representation: str
    ranks: bool


# Where a policy is too large, the rank view goes first: it is for the first thousand tasks with few features, while a
# policy near the limit has hundreds of them, and trees and forgetting pay for as long as it lives.
CHOICES = (
    Choice("auto", BEST, ranks=True),
    Choice("auto", BEST, ranks=False),
    Choice("auto", "linear", ranks=True),
    Choice("auto", "linear", ranks=False),
    Choice("never", "linear", ranks=True),
    Choice("never", "linear", ranks=False),
)


def with_defaults(spec: PolicySpec) -> PolicySpec:
    """Return a specification with current defaults for unset fields: the first of `CHOICES` that is possible.

    The result is written to the log, so that a replay does not depend on the version or on installed libraries.

    Raises:
        InvalidArgument: If the specification is invalid.
    """
    rule = INDEX if spec.rule is msgspec.UNSET else spec.rule
    unset = spec.defaults is msgspec.UNSET
    spec = msgspec.structs.replace(
        spec,
        rule=rule,
        defaults=(DECEMBER_2026 if rule == INDEX else NOVEMBER_2026) if unset else spec.defaults,
        embedding=spec.complete_embedding(),
        outliers="clip" if spec.outliers is msgspec.UNSET else spec.outliers,
        budget={name: with_ceiling(each) for name, each in spec.budget.items()},
        retention_s=RETENTION_S if spec.retention_s is msgspec.UNSET else spec.retention_s,
    )
    made = first_possible(spec)
    if made.link is not msgspec.UNSET:
        return made
    return msgspec.structs.replace(made, link=settings_of(msgspec.structs.replace(made, link=AUTO_LINK)).link)


def first_possible(spec: PolicySpec) -> PolicySpec:
    """Return a specification with the first of `CHOICES` that is possible, for the fields that it leaves open."""
    for choice in CHOICES if spec.rule == INDEX and spec.embedding is None else CHOICES[-1:]:
        open_fields = {name: value for name, value in choice._asdict().items() if getattr(spec, name) is msgspec.UNSET}
        if spec.defaults_used == NOVEMBER_2026:
            open_fields.pop("ranks", None)
        made = msgspec.structs.replace(spec, **open_fields)
        if is_possible(made) and numbers_of(made) <= MAX_NUMBERS:
            break
    return made


def upgraded_spec(
    created: PolicySpec, spec: PolicySpec, defaults: str, confidence: int | str | msgspec.UnsetType
) -> PolicySpec:
    """Return a policy with another version of the default rule: where it was created with that, as it was then.

    Args:
        created: The policy as it was created.
        spec: The policy as it is.
        defaults: The version of the default rule.
        confidence: The feature that is the model's confidence; unset for none.

    Raises:
        InvalidArgument: If the policy cannot have this rule.
    """
    if created.defaults_used == defaults and confidence in (msgspec.UNSET, created.confidence):
        return spec.learning_as(created)
    if spec.rule == INTERVAL:
        raise InvalidArgument(f"With rule {INTERVAL!r} a policy has no defaults other than {NOVEMBER_2026}.")
    link = msgspec.UNSET if spec.link_used in (AUTO_LINK, LEGACY_DEFAULTS["link"]) else spec.link
    open_spec = msgspec.structs.replace(
        spec, rule=INDEX, defaults=defaults, link=link, ranks=msgspec.UNSET, confidence=confidence
    )
    return spec.learning_as(with_defaults(open_spec))


def with_ceiling(budget: BudgetSpec) -> BudgetSpec:
    """Return a budget with the default max_reported_cost, if it sets none and has a max_cost.

    >>> with_ceiling(BudgetSpec(total=10, horizon=100, max_cost=0.3)).max_reported_cost
    6.0
    """
    if budget.max_reported_cost is not msgspec.UNSET or budget.max_cost is None:
        return budget
    ceiling = min(CEILING_FACTOR * to_micro("max_cost", budget.max_cost), MAX_AMOUNT * MICRO)
    return msgspec.structs.replace(budget, max_reported_cost=ceiling / MICRO)


def linear_remark(asked: PolicySpec, made: PolicySpec) -> str | None:
    """Return a warning with the reason for a linear representation by default; None if trees are used."""
    chosen = asked.representation is msgspec.UNSET and made.embedding is None and made.rule == INDEX
    if not chosen or made.representation != "linear":
        return None
    if absent := REPRESENTATIONS[BEST].find_missing():
        return f"estimates are linear, because {join_names(absent)} is missing: pip install 'deferkit[trees]'"
    return "estimates are linear: trees are for the cost_link 'identity', and for fewer features or experts"


def is_possible(spec: PolicySpec) -> bool:
    """Whether what the representation needs is installed, and the other settings allow it."""
    kind = kind_of(spec)
    return not (kind.trains and spec.cost_link != "identity") and not kind.find_missing()


def numbers_of(spec: PolicySpec) -> int:
    """Return the number of doubles that a policy keeps in memory: matrices, contexts, what its representation keeps."""
    settings = settings_of(spec)
    own = settings.kind.count_numbers(settings.shape, settings.remembered_contexts)
    return sum(count_numbers(settings).values()) + own


def matrix_numbers(settings: Settings) -> int:
    """Return the number of matrix elements of a learner; a decision reads most of them.

    There are two for each reward and each cost, as often as the estimates have members.
    """
    numbers = count_numbers(settings)
    return numbers["inverse"] + numbers["precision"]


def memory_of(spec: PolicySpec) -> int:
    """Return the maximum memory of a policy's learner in bytes. It is constant until an upgrade.

    A policy that is not served here, because the plug-in of its embedding is not installed, takes none.

    >>> from deferkit.serve.domain.spec import BudgetSpec
    >>> budget = {"minutes": BudgetSpec(total=10, horizon=100, max_cost=1)}
    >>> memory_of(PolicySpec(name="a", features=1000, budget=budget, memory=1000, forget="never"))
    56000000
    """
    try:
        kind_of(spec)
    except InvalidArgument:
        return 0
    return BYTES_OF_A_NUMBER * numbers_of(spec)


def check_size(spec: PolicySpec) -> None:
    """Raise if a policy needs more memory, or more time for a retraining, than the limit."""
    numbers, settings = numbers_of(spec), settings_of(spec)
    step = settings.kind.retraining_step(settings.shape, settings.kind.max_kept(settings.remembered_contexts))
    if numbers <= MAX_NUMBERS and step > MAX_RETRAINING:
        raise InvalidArgument(
            f"A retraining of the embedding {settings.kind.name!r} would take {step:,} multiplications; the maximum is"
            f" {MAX_RETRAINING:,}. Use a shorter memory or a smaller embedding."
        )
    if numbers > MAX_NUMBERS:
        used = f"forget {spec.forget_used!r} and representation {spec.representation_used!r}"
        hint = "representation 'linear' or forget 'never'"
        if spec.embedding is not None:
            used, hint = f"the embedding {settings.kind.name!r}", "or a smaller embedding with a shorter memory"
        raise InvalidArgument(
            f"With its features, {len(spec.experts)} experts, {len(spec.budget)} resources, {used}, the policy would"
            f" keep {numbers:,} numbers; the maximum is {MAX_NUMBERS:,}. Use fewer of them, a shorter memory, {hint}."
        )


def kind_of(spec: PolicySpec) -> RepresentationKind:
    """Return the kind of the representation of a policy."""
    return registry.kind_of(spec.representation_used, spec.embedding_used)


def load_libraries(spec: PolicySpec) -> None:
    """Import what the representation of a policy needs, which can take seconds and would delay the first fit."""
    check_installed(spec)
    if feature := kind_of(spec).feature:
        for module in REQUIREMENTS[feature].modules:
            import_module(module)


def check_installed(spec: PolicySpec) -> None:
    """Raise if something that the representation of a policy needs is not installed."""
    try:
        kind = kind_of(spec)
    except InvalidArgument as error:  # the plug-in of its embedding
        raise MissingExtra(f"A policy needs what is not installed. {error}") from error
    if kind.feature is not None:
        needs(kind.feature, what=f"A policy with the representation {kind.name!r}")


def learner_of(spec: PolicySpec) -> Deferrer:
    """Return a new learner for a policy; raise if the specification is invalid.

    >>> from deferkit.serve.domain.spec import BudgetSpec
    >>> spec = PolicySpec(name="a", features=2, budget={"minutes": BudgetSpec(total=10, horizon=100, max_cost=1)})
    >>> learner_of(spec).summary().total
    10.0
    """
    settings = settings_of(spec)
    check_size(spec)
    load_libraries(spec)
    return Deferrer.from_settings(settings, encoder_of(spec))


def settings_of(spec: PolicySpec) -> Settings:
    """Return the settings of a policy's learner; raise if the specification is invalid."""
    encoder = encoder_of(spec)
    return Settings(
        n_features=spec.features if encoder is None else encoder.n_features,  # type: ignore[arg-type]
        budget=budgets_of(spec),
        experts=tuple(spec.experts),
        link=spec.link_used,
        cost_link=spec.cost_link,
        pacing=Pacing(kind=spec.pacing),
        exploration=Exploration(scale=spec.exploration, rule=INTERVAL if spec.rule is msgspec.UNSET else spec.rule),
        warm_up=spec.warm_up,
        explore_floor=spec.explore_floor,
        reward_range=spec.reward_range,
        memory=spec.memory,
        forget=spec.forget_used,
        refit="doubling" if spec.forget is msgspec.UNSET else None,  # as in versions without `forget`
        representation=spec.representation_used,
        embedding=spec.embedding_used,
        seed=spec.seed,
        confidence=as_confidence(None if spec.confidence is msgspec.UNSET else spec.confidence, encoder),
        defaults=spec.defaults_used,
        without=() if spec.ranks_used else ("ranks",),
    )


def check_affordable(spec: PolicySpec) -> None:
    """Raise if a budget is smaller than its max_cost, so that no task can be deferred. For new policies only."""
    if sentence := unaffordable_reviews(budgets_of(spec)):
        raise InvalidArgument(sentence)


def check_review(spec: PolicySpec) -> None:
    """Raise if the review document of a policy is invalid. For new policies and changes only."""
    if (document := spec.review_used) is not None:
        bounds = settings_of(spec).reward_bounds
        check_document(document, resources=spec.resources, deciders=spec.deciders, reward_range=bounds)


def budgets_of(spec: PolicySpec) -> dict[str, Budget]:
    """Return the budgets for the learner; raise if one is invalid."""
    budgets = {}
    for name, each in spec.budget.items():
        given: dict[str, Any] = {
            field: value for field in LIMITED_BUDGET_FIELDS if (value := getattr(each, field)) is not msgspec.UNSET
        }
        if each.total is None and given:
            raise InvalidArgument(f"The budget of {name} has no total, so it has no {' or '.join(given)} either.")
        if each.total is not None and (
            (each.horizon is None and not each.is_timed) or (each.max_cost is None and each.limit is msgspec.UNSET)
        ):
            raise InvalidArgument(
                f"The budget of {name} has a total, so it needs a horizon (the number of tasks it must last for), until"
                " or every, and a max_cost (the amount held for each decision until its cost is known) or a limit."
            )
        for field in ("total", "max_cost", "hold", "limit"):
            if isinstance(amount := getattr(each, field), (int, float)):
                to_micro(f"{field} of {name}", amount)
        check_holds(name, each)
        if each.max_reported_cost is not msgspec.UNSET and each.max_reported_cost is not None:
            to_micro(f"max_reported_cost of {name}", each.max_reported_cost)
            if each.max_reported_cost < (each.max_cost or 0):
                raise InvalidArgument(
                    f"The max_reported_cost of {name} is at least its max_cost, {each.max_cost:g}."
                    f" Got {each.max_reported_cost:g}."
                )
        if each.carry is None:
            given["carry"] = math.inf
        unlimited = each.total is None
        budgets[name] = Budget(
            float("inf") if unlimited else each.total,  # type: ignore[arg-type]
            horizon=None if unlimited else each.horizon,
            max_cost=each.max_cost,
            **given,
        )
    return budgets


def check_holds(name: str, budget: BudgetSpec) -> None:
    """Raise if the hold of a review that can be stopped is larger than its maximum cost."""
    caps = {"max_cost": budget.max_cost, "limit": budget.limit}
    for field in ("hold", "limit"):
        amount = getattr(budget, field)
        for cap, most in caps.items():
            if cap != field and isinstance(amount, (int, float)) and isinstance(most, (int, float)) and amount > most:
                raise InvalidArgument(f"The {field} of {name} is at most its {cap}, {most:g}. Got {amount:g}.")


def check_ends(spec: PolicySpec, now: float) -> None:
    """Raise if a budget ends before it begins. For new policies only.

    Args:
        spec: The policy.
        now: Seconds since 1970.
    """
    for name, budget in spec.budget.items():
        if budget.until is not msgspec.UNSET and budget.until <= now:
            raise InvalidArgument(
                f"The budget of {name} would have ended on {show_time(budget.until)}: it is {show_time(now)} now."
            )


def encoder_of(spec: PolicySpec) -> Encoder | None:
    """Return the encoder of named features; None for plain vectors."""
    given = spec.features
    return Encoder(numbers=given.numbers, categories=given.categories) if isinstance(given, FeatureSpec) else None
