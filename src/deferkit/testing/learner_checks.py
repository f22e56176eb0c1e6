"""Checks of a learner's contract."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from deferkit.errors import BudgetExhausted, DeferkitError, SpendingWarning
from deferkit.learn.context import as_amount
from deferkit.learn.deferrer import Deferrer
from deferkit.study.policy_registry import run_by_steps
from deferkit.worlds.base import TaskStream


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
