"""The contract of a pacing: that of a learner which has it, and what its price must do."""

from typing import Any

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.pacing import PACING_PLUGINS, PACINGS
from deferkit.plugins import reference_of
from deferkit.study.policy_registry import run_by_steps, setting_of
from deferkit.testing.learner_checks import ContractCheck, learner_checks, part, require, run_checks, spent_of
from deferkit.testing.policy_checks import SHARE, small_stream


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
