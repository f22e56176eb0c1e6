"""The contract of a learner, and those of a pacing and of an embedding, which are that of a learner which has it."""

import json
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from deferkit.errors import BudgetExhausted, DeferkitError, InvalidArgument, SpendingWarning
from deferkit.learn.context import as_amount
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.embed import EMBEDDING_PLUGINS, EMBEDDINGS, embedding_from, is_embedding
from deferkit.learn.embed.retrained import RetrainedEmbedding
from deferkit.learn.pacing import PACING_PLUGINS, PACINGS
from deferkit.plugins import reference_of
from deferkit.study.policy_registry import run_by_steps, setting_of
from deferkit.worlds.base import TaskStream
from deferkit.worlds.synthetic import Synthetic


class ContractViolated(DeferkitError, AssertionError):
    """A plug-in does not keep a promise of its kind; the message says which, and what happened.

    >>> from deferkit.testing import ContractViolated
    >>> raise ContractViolated("budget: 12.1 was spent of 10.")
    Traceback (most recent call last):
    deferkit.testing.learner_checks.ContractViolated: budget: 12.1 was spent of 10.
    """


class ContractCheck(NamedTuple):
    """One promise, and the check of it.

    Attributes:
        name: One word, as in an error.
        promise: What is promised.
        run: Raises ContractViolated if the promise is not kept.
    """

    name: str
    promise: str
    run: Callable[[], None]


def run_checks(checks: Sequence[ContractCheck]) -> list[str]:
    """Run checks; return their names.

    Raises:
        ContractViolated: By the first check that fails; also where the plug-in raised an error of its own.
    """
    for check in checks:
        run_one(check)
    return [check.name for check in checks]


def run_one(check: ContractCheck) -> None:
    """Run a check; an error of the plug-in's own becomes a ContractViolated."""
    try:
        with warnings.catch_warnings():
            # Checks run small budgets on purpose, some of which afford hardly a review.
            warnings.simplefilter("ignore", SpendingWarning)
            check.run()
    except ContractViolated as error:
        raise ContractViolated(f"{check.name}: {error} Promised: {check.promise}.") from error
    except Exception as error:  # whatever a plug-in raises
        reason = f"{type(error).__name__}: {error}"
        raise ContractViolated(f"{check.name}: {reason}. Promised: {check.promise}.") from error


def require(kept: object, sentence: str) -> None:
    """Raise ContractViolated with this sentence unless a promise is kept."""
    if not kept:
        raise ContractViolated(sentence)


def disturb_global_generator(number: int) -> None:
    """Move NumPy's global random stream, which nothing may depend on."""
    np.random.seed(number)  # noqa: NPY002


TASKS, FEATURES, SHARE = 160, 4, 0.2  # enough for a learner to learn, and soon over
SEED = 3
MakeLearner = Callable[[], Deferrer]
BAD_CONTEXTS: tuple[Any, ...] = ([math.nan], [math.inf], "text", None)
HALF = 2
BEGINNING = 20  # tasks after which there is budget left


def learner_checks(make: MakeLearner, stream: TaskStream) -> list[ContractCheck]:
    """Return the checks of a learner.

    Args:
        make: Returns a fresh learner for the stream, the same each time.
        stream: Tasks with one expert and one resource, of which everything is known.
    """
    return [
        ContractCheck("bulk", "`run` decides as `decide` and `observe` do, bit for bit", lambda: bulk(make, stream)),
        ContractCheck("propose", "`propose` and `score` change nothing", lambda: propose(make, stream)),
        ContractCheck("save", "a learner that is saved and loaded goes on bit for bit", lambda: save(make, stream)),
        ContractCheck("price", "a price is a finite number of at least 0", lambda: price(make, stream)),
        ContractCheck("refused", "a bad context is refused, and nothing changes", lambda: check_refused(make, stream)),
    ]


def half_way(make: MakeLearner, stream: TaskStream) -> tuple[Deferrer, TaskStream]:
    """Return a learner after half of a stream, and the other half."""
    learner, at = make(), stream.n_tasks // HALF
    run_by_steps(learner, part(stream, slice(0, at)), "full")
    return learner, part(stream, slice(at, None))


def part(stream: TaskStream, rows: slice) -> TaskStream:
    """Return some tasks of a stream."""
    return TaskStream(stream.contexts[rows], stream.rewards[rows], stream.costs[rows], stream.link)


def bulk(make: MakeLearner, stream: TaskStream) -> None:
    """Compare the compiled loop with single steps."""
    for feedback in ("full", "bandit", "reviewed"):
        whole, single = make(), make()
        by_decider = {name: stream.rewards[:, i] for i, name in enumerate(whole.settings.deciders)}
        routes = whole.run(stream.contexts, by_decider, stream.costs, feedback=feedback).routes
        steps, _ = run_by_steps(single, stream, feedback)
        require((routes == steps).all(), f"With {feedback} feedback the two decide otherwise.")
        require(whole == single, f"With {feedback} feedback the two end in different states.")


def propose(make: MakeLearner, stream: TaskStream) -> None:
    """Propose and score in the middle of a stream."""
    learner = make()
    run_by_steps(learner, part(stream, slice(0, BEGINNING)), "full")
    with suppress(BudgetExhausted):  # the price moves for a pending review in each proposal
        learner.decide(stream.contexts[BEGINNING], force=learner.settings.experts[0])
    rest = part(stream, slice(BEGINNING + 1, None))
    before = learner.to_bytes()
    learner.propose(rest.contexts[0])
    learner.score(rest.contexts[:10])
    require(learner.to_bytes() == before, "The state has changed.")
    first, second = (learner.propose(rest.contexts[0]).decision for _ in range(2))
    require(first == second, "Two proposals for one context differ.")


def save(make: MakeLearner, stream: TaskStream) -> None:
    """Save in the middle of a stream, and go on with both."""
    learner, rest = half_way(make, stream)
    loaded = Deferrer.from_bytes(learner.to_bytes(), "memory")
    require(loaded == learner, "What was loaded is not what was saved.")
    routes, prices = run_by_steps(learner, rest, "full")
    again, same_prices = run_by_steps(loaded, rest, "full")
    require((routes == again).all() and (prices == same_prices).all(), "After loading, decisions or prices differ.")
    require(loaded == learner, "After loading, the two end in different states.")


def price(make: MakeLearner, stream: TaskStream) -> None:
    """Look at every price of a stream."""
    _, prices = run_by_steps(make(), stream, "bandit")
    for each in prices.ravel().tolist():
        require(math.isfinite(each) and each >= 0, f"There is a price of {each}.")


def check_refused(make: MakeLearner, stream: TaskStream) -> None:
    """Give contexts that are none, and outcomes that are none."""
    learner, rest = half_way(make, stream)
    decision = learner.decide(rest.contexts[0])
    before = learner.to_bytes()
    good = rest.contexts[1].tolist()
    calls: list[tuple[str, Callable[[], object]]] = [
        ("a context that is too long", lambda: learner.decide([*good, 1.0])),
        ("a reward that is no number", lambda: learner.observe(decision.id, {decision.route: math.nan})),
    ]
    for bad in BAD_CONTEXTS:
        context = [*good[:-1], *bad] if isinstance(bad, list) else bad
        calls.append((f"the context {bad!r}", lambda context=context: learner.decide(context)))  # type: ignore[misc]
    for what, call in calls:
        try:
            call()
        except DeferkitError:
            require(learner.to_bytes() == before, f"After {what} the state has changed.")
            continue
        require(False, f"It took {what}.")


def spent_of(learner: Deferrer) -> float:
    """Return a learner's spending of its only resource."""
    return float(as_amount("spent", learner.summary().spent, learner.settings.resources)[0])


def small_stream(link: str = "identity") -> TaskStream:
    """Return a stream that nobody can write to."""
    stream = Synthetic(horizon=TASKS, n_features=FEATURES, most_ones=3, link=link).draw(SEED)
    for array in (stream.contexts, stream.rewards, stream.costs):
        array.flags.writeable = False
    return stream


def pacing_checks(pacing: Any) -> list[ContractCheck]:
    """Return the checks of a pacing, to be run one by one.

    Args:
        pacing: A name, `module:name`, or a class derived from `PythonPacing`.

    Raises:
        InvalidArgument: There is no such pacing.
    """
    kind = kind_name(pacing)
    stream = small_stream()
    setting = setting_of(stream, SHARE * float(stream.costs.sum()), 3)

    def make(**given: Any) -> Deferrer:
        return setting.deferrer(pacing=kind, **given)

    def budget() -> None:
        for total in (0.0, setting.max_cost, setting.budget):
            learner = setting._replace(budget=total).deferrer(pacing=kind)
            run_by_steps(learner, stream, "full")
            require(spent_of(learner) <= total, f"{spent_of(learner):g} was spent of {total:g}.")

    def seed() -> None:
        first, second = (run_by_steps(make(), stream, "full") for _ in range(2))
        same = all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        require(same, "Two learners with the same seed decide otherwise: a pacing remembers nothing beside the dual.")

    def change() -> None:
        learner = make()
        half = stream.n_tasks // 2
        run_by_steps(learner, part(stream, slice(0, half)), "full")
        learner.change_budget(2 * setting.budget)
        _, prices = run_by_steps(learner, part(stream, slice(half, None)), "full")
        require(np.isfinite(prices).all(), "After a change of the budget a price is NaN or infinite.")

    def without() -> None:
        learner = Deferrer(n_features=setting.n_features, reward_range=setting.reward_range, pacing=kind)
        _, prices = run_by_steps(learner, stream, "full")
        require((prices == 0).all(), "There is a price where the budget has no end.")

    return [
        ContractCheck("budget", "the budget is never exceeded, also if it is 0", budget),
        ContractCheck("seed", "a seed gives the same decisions again; all memory is in the dual", seed),
        ContractCheck("change", "a budget can be changed", change),
        ContractCheck("free", "what has no bound has no price", without),
        *learner_checks(make, stream),
    ]


def kind_name(pacing: Any) -> str:
    """Return the name of a pacing; a class is added to the known ones."""
    if isinstance(pacing, str):
        return pacing
    if not PACING_PLUGINS.accepts(pacing):
        raise InvalidArgument(
            f"{pacing!r} is no pacing: it must be one of {', '.join(PACINGS)}, or {PACING_PLUGINS.wanted}."
        )
    PACING_PLUGINS.add(reference_of(pacing), pacing)
    return reference_of(pacing)


def check_pacing(pacing: Any) -> list[str]:
    """Check that a pacing keeps the promises of its kind.

    Args:
        pacing: A name, `module:name`, or a class derived from `PythonPacing`.

    Returns:
        The names of the checks.

    Raises:
        ContractViolated: A promise is not kept.
        InvalidArgument: There is no such pacing.

    >>> check_pacing("adaptive")
    ['budget', 'seed', 'change', 'free', 'bulk', 'propose', 'save', 'price', 'refused']
    """
    return run_checks(pacing_checks(pacing))


def embedding_of(embedding: Any) -> Any:
    """Return the settings of an embedding, by its kind, its class or as they are."""
    if isinstance(embedding, str):
        kinds: dict[str, type[Any]] = {each.kind: each for each in EMBEDDINGS}
        embedding = kinds.get(embedding) or EMBEDDING_PLUGINS.find(embedding) or embedding
    made = embedding() if isinstance(embedding, type) else embedding
    if not is_embedding(made):
        raise InvalidArgument(f"{made!r} is no embedding: it must be {EMBEDDING_PLUGINS.wanted}.")
    return made


def embedding_checks(embedding: Any) -> list[ContractCheck]:
    """Return the checks of an embedding, to be run one by one.

    Args:
        embedding: A kind, `module:name`, a class that needs no arguments, or its settings.

    Raises:
        InvalidArgument: There is no such embedding.
    """
    settings = embedding_of(embedding)
    stream = small_stream()
    setting = setting_of(stream, SHARE * float(stream.costs.sum()), 3)

    def make() -> Deferrer:
        return setting.deferrer(embedding=settings)

    def train() -> RetrainedEmbedding:
        learner = make()
        run_by_steps(learner, stream, "full")
        used = learner._representation
        assert isinstance(used, RetrainedEmbedding)
        return used

    def plain() -> None:
        told = json.dumps(settings.to_dict())
        again = embedding_from(json.loads(told))
        require(json.dumps(again.to_dict()) == told, "`to_dict` and back is another embedding.")

    def seed() -> None:
        found = []
        for number in (1, 2):
            disturb_global_generator(number)
            found.append(run_by_steps(make(), stream, "full")[0])
        require(np.array_equal(found[0], found[1]), "Two learners with the same seed decide otherwise.")

    def views() -> None:
        used = train()
        whole = used.transform(stream.contexts)
        require(np.isfinite(whole).all(), "A view contains NaN or infinity.")
        single = np.concatenate([used.transform(stream.contexts[i : i + 1]) for i in range(stream.n_tasks)])
        require(np.array_equal(whole, single), "The view of a task depends on the tasks beside it.")

    return [
        ContractCheck("settings", "the settings are JSON values, and back", plain),
        ContractCheck("seed", "a seed gives the same decisions again", seed),
        ContractCheck("views", "a view is finite, and does not depend on other tasks", views),
        *learner_checks(make, stream),
    ]


def check_embedding(embedding: Any) -> list[str]:
    """Check that an embedding keeps the promises of its kind.

    Args:
        embedding: A kind, `module:name`, a class that needs no arguments, or its settings.

    Returns:
        The names of the checks.

    Raises:
        ContractViolated: A promise is not kept.
        InvalidArgument: There is no such embedding.
    """
    return run_checks(embedding_checks(embedding))
