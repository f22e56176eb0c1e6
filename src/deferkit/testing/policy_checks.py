"""The contract of a policy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.learn.deferrer import Deferrer
from deferkit.plugins import reference_of
from deferkit.study.peers import PEERS
from deferkit.study.policy_registry import (
    OPTIMA,
    POLICIES,
    POLICY_PLUGINS,
    PolicyRun,
    check_policy_name,
    is_learner,
    is_policy,
    make_learner,
    policy_plugin,
    run_made,
    run_policy,
    setting_of,
)
from deferkit.testing.learner_checks import (
    SEED,
    SHARE,
    ContractCheck,
    disturb_global_generator,
    learner_checks,
    part,
    require,
    run_checks,
    small_stream,
)
from deferkit.worlds.base import TaskStream
from deferkit.worlds.synthetic import Synthetic


class Subject(NamedTuple):
    """A policy to be checked: how it is run, and how it is made where that is possible."""

    name: str
    run: Callable[[TaskStream, float, str], PolicyRun]  # on a stream, with a budget and a feedback
    make: Callable[[TaskStream, float], Any] | None  # for a stream and a budget
    feedbacks: tuple[str, ...]


def subject_of(policy: Any) -> Subject:
    """Return the policy under check and its runners.

    Raises:
        InvalidArgument: There is no such policy, or it knows what no policy is told.
    """
    if not isinstance(policy, str):
        if not is_policy(policy):
            raise InvalidArgument(f"{policy!r} is no policy: it must be {POLICY_PLUGINS.wanted}.")
        name = reference_of(policy)
        return Subject(
            name,
            lambda stream, budget, feedback: run_made(policy, name, stream, [budget], seed=SEED, feedback=feedback),
            lambda stream, budget: policy(setting_of(stream, budget, SEED)),
            ("full", "bandit", "reviewed"),
        )
    check_policy_name(policy)
    if policy in OPTIMA:
        raise InvalidArgument(f"The optimum {policy!r} knows what no policy is told.")
    if policy not in POLICIES and (plugin := policy_plugin(policy)) is not None and not plugin.is_learner:
        return subject_of(plugin.value)
    make: Callable[[TaskStream, float], Any] | None = None
    if is_learner(policy):
        make = lambda stream, budget: make_learner(policy, stream, [budget], seed=SEED)  # noqa: E731
    elif policy in PEERS:
        make = lambda stream, budget: PEERS[policy].make(setting_of(stream, budget, SEED))  # noqa: E731
    return Subject(
        policy,
        lambda stream, budget, feedback: run_policy(policy, stream, [budget], seed=SEED, feedback=feedback),
        make,
        ("bandit",) if policy in PEERS else ("full", "bandit", "reviewed"),
    )


def policy_checks(policy: Any) -> list[ContractCheck]:
    """Return the checks of a policy, to be run one by one: `check.run()`.

    Args:
        policy: A name, `module:name`, or a class or function that takes a `Setting`.

    Raises:
        InvalidArgument: There is no such policy.
    """
    subject = subject_of(policy)
    stream = small_stream()
    budget = SHARE * float(stream.costs.sum())
    checks = [
        ContractCheck("budget", "the budget is never exceeded, also if it is 0", lambda: within_budget(subject)),
        ContractCheck("seed", "a seed gives the same decisions again", lambda: same_again(subject)),
        ContractCheck("routes", "each task is decided, by the model or the human", lambda: routes(subject)),
        ContractCheck("inputs", "what is handed in is not changed", lambda: inputs_unchanged(subject)),
        ContractCheck(
            "feedback", "it runs with every feedback, with NaN for what it hides", lambda: feedbacks(subject)
        ),
        ContractCheck("small", "it runs on one feature and few tasks", lambda: small(subject)),
    ]
    make = subject.make
    made = None if make is None else make(stream, budget)
    if isinstance(made, Deferrer):
        return checks + learner_checks(lambda: make(stream, budget), stream)  # type: ignore[misc]
    if made is not None and all(callable(getattr(made, name, None)) for name in ("state", "restore")):
        kept = ContractCheck(
            "save",
            "a policy with `state` and `restore` goes on bit for bit after a restart",
            lambda: saved_and_restored(lambda: make(stream, budget), stream),  # type: ignore[misc]
        )
        return [*checks, kept]
    return checks


def check_policy(policy: Any) -> list[str]:
    """Check that a policy keeps the promises of its kind.

    Args:
        policy: A name, `module:name`, or a class or function that takes a `Setting`.

    Returns:
        The names of the checks. A policy that makes a `Deferrer` has more of them; one with `state` and `restore` is
        checked to be saved by them.

    Raises:
        ContractViolated: A promise is not kept.
        InvalidArgument: There is no such policy.
    """
    return run_checks(policy_checks(policy))


def streams_for(subject: Subject) -> list[TaskStream]:
    """Return streams of both links; only that of the identity, if a policy says that it is not for the other."""
    streams = [small_stream(), small_stream("logistic")]
    try:
        subject.run(streams[1], 0.0, subject.feedbacks[0])
    except InvalidArgument:
        return streams[:1]
    return streams


def within_budget(subject: Subject) -> None:
    """Add up what each of several budgets was spent on."""
    for stream in streams_for(subject):
        everything = float(stream.costs.sum())
        for budget in (0.0, 0.05 * everything, 0.3 * everything):
            run = subject.run(stream, budget, subject.feedbacks[0])
            spent = float(stream.costs[run.routes == 1].sum())
            require(spent <= budget, f"{spent:g} was spent of {budget:g}.")


def same_again(subject: Subject) -> None:
    """Run twice, with NumPy's global stream elsewhere."""
    stream = small_stream()
    found = []
    for number in (1, 2):
        disturb_global_generator(number)
        found.append(subject.run(stream, SHARE * float(stream.costs.sum()), subject.feedbacks[0]).routes)
    require(np.array_equal(found[0], found[1]), "Two runs with one seed decide otherwise.")


def routes(subject: Subject) -> None:
    """Look at what was decided."""
    stream = small_stream()
    run = subject.run(stream, SHARE * float(stream.costs.sum()), subject.feedbacks[0])
    require(run.routes.shape == (stream.n_tasks,), f"{run.routes.shape} routes for {stream.n_tasks} tasks.")
    require(set(np.unique(run.routes)) <= {0, 1}, f"There are the routes {np.unique(run.routes)}.")


def inputs_unchanged(subject: Subject) -> None:
    """Run on arrays that nobody can write to, and on some that are compared afterwards."""
    stream = small_stream()
    loose = part(stream, slice(None))._replace(
        contexts=stream.contexts.copy(), rewards=stream.rewards.copy(), costs=stream.costs.copy(), truth=stream.truth
    )
    subject.run(loose, SHARE * float(stream.costs.sum()), subject.feedbacks[0])
    for before, after in zip(stream[:3], loose[:3], strict=True):
        require(np.array_equal(before, after), "An array was changed.")


def feedbacks(subject: Subject) -> None:
    """Run with each feedback."""
    for stream in streams_for(subject):
        for feedback in subject.feedbacks:
            subject.run(stream, SHARE * float(stream.costs.sum()), feedback)


def small(subject: Subject) -> None:
    """Run on a few tasks of one feature."""
    stream = Synthetic(horizon=12, n_features=1, most_ones=1).draw(SEED)
    subject.run(stream, 0.5 * float(stream.costs.sum()), subject.feedbacks[0])


def saved_and_restored(make: Callable[[], Any], stream: TaskStream) -> None:
    """Take the state half way, and go on with a fresh policy that has it."""
    policy, half = make(), stream.n_tasks // 2
    step_through(policy, part(stream, slice(0, half)))
    restored = make()
    restored.restore({name: np.array(array) for name, array in policy.state().items()})
    rest = part(stream, slice(half, None))
    require(step_through(policy, rest) == step_through(restored, rest), "After `restore`, decisions differ.")
    first, second = policy.state(), restored.state()
    same = first.keys() == second.keys() and all(np.array_equal(first[k], second[k]) for k in first)
    require(same, "After `restore`, the two end in different states.")


def step_through(policy: Any, stream: TaskStream) -> list[bool]:
    """Return the tasks that a policy defers, as booleans; every request is granted."""
    wanted = []
    for x, rewards, costs in zip(stream.contexts, stream.rewards, stream.costs[:, 0, 0], strict=True):
        asked = bool(policy.decide(x))
        policy.observe(x, asked, float(rewards[int(asked)]), float(costs) if asked else 0.0)
        wanted.append(asked)
    return wanted
