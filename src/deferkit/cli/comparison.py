"""What `deferkit run` compares: world, policies and budget, with their defaults."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deferkit.cli.options import flag_of
from deferkit.cli.warm import cold_name
from deferkit.errors import DeferkitError
from deferkit.study.achievable import check_achievable, is_achievable_known
from deferkit.study.allowance import Allowance, askable_costs, remark
from deferkit.study.policy_registry import (
    check_hindsight,
    check_installed,
    check_policy_name,
    is_learner,
    make_learner,
    needs_hindsight,
    sure_cost,
    without_trees,
)
from deferkit.study.spec import Spec
from deferkit.study.timed_trial import is_timed
from deferkit.worlds import make_world
from deferkit.worlds.task_stream import TaskStream


class Defaults(NamedTuple):
    """What is compared in a world unless it is given."""

    budget: str
    policies: tuple[str, ...]


DEFAULTS = Defaults("10%", ("model-only", "arbitrary-human", "best-reject", "default", "achievable", "opt"))
OF_WORLD = {
    "synthetic": Defaults("2000", ("model-only", "arbitrary-human", "best-reject", "paper", "default", "opt")),
}
"""Worlds with other defaults: in the paper's, its algorithm is compared, and the achievable optimum is OPT."""
TIMED = ("model-only", "arbitrary-human", "default", "opt")
"""What is compared with a budget that has a period, an end or a hold, unless given."""
UNSPENT_SHARE = 0.1  # of the budget: a remark if more may stay unspent
HEAVY = 10.0  # means that the largest cost must be above for a smaller hold to be proposed
HEAVY_SHARE = 0.02  # of the budget that the largest cost must be for that


class Comparison(NamedTuple):
    """A world with its options, the policies and the budget; what was not given is filled in."""

    world: str
    parameters: Mapping[str, Any]
    policies: list[str]
    budget: str
    stream: TaskStream  # the first one
    remarks: list[str]
    failures: dict[str, str]  # of policies that cannot run here, and why

    @property
    def shown(self) -> list[str]:
        """The policies as they are shown; where there is a past, each learner also without it."""
        past = self.stream.past is not None
        both = [[name, cold_name(name)] if past and is_learner(name) else [name] for name in self.policies]
        return [name for names in both for name in names]

    @property
    def measured(self) -> list[str]:
        """The same, and what they are compared with if that is not among them."""
        alike = self.stream.truth is None and not is_timed(self.stream, self.budget)
        beside = alike and is_achievable_known(self.stream) and "achievable" not in self.policies
        return [*self.shown, *(["achievable"] if beside else [])]

    @classmethod
    def of(
        cls,
        world: str,
        parameters: Mapping[str, Any],
        policies: Sequence[str] | None,
        budget: str | None,
        seed: int,
        feedback: str = "full",
    ) -> "Comparison":
        """Return a comparison; a policy that cannot run on the world is among the failures.

        Where none can, the error of the first one is raised.

        >>> asked = Comparison.of("synthetic", {"horizon": 100}, None, None, 0)
        >>> asked.budget, asked.policies[-2:], asked.stream.n_tasks
        ('2000', ['default', 'opt'], 100)
        """
        defaults = OF_WORLD.get(world, DEFAULTS)
        budget = defaults.budget if budget is None else budget
        allowance = Allowance.from_text(budget)
        for name in policies or ():
            check_policy_name(name)
        stream = make_world(world, parameters).draw(seed)
        n_resources = stream.costs.shape[2]
        total = allowance.total(stream)
        timed = is_timed(stream, budget)
        about = (
            None if timed else remark(total, stream),
            kept_back(allowance, stream) or tight(total, stream),
            heavy(world, parameters, budget, stream),
        )
        remarks = [said for said in about if said] + stream.remark.splitlines()
        chosen = list(dict.fromkeys(policies or (TIMED if timed else defaults.policies)))
        if timed:
            allowance.budget(stream, sure_cost(stream))  # raises if times are missing
        if not policies:
            if n_resources > 1:
                chosen = [name for name in chosen if name != "paper"]
            if not is_achievable_known(stream):
                chosen = [name for name in chosen if name != "achievable"]
            if not stream.complete:
                chosen = [name for name in chosen if not needs_hindsight(name)]
        remarks += without_trees(chosen, stream)
        if not stream.complete:
            remarks.append(lost(stream, [] if policies else chosen))
        errors: dict[str, DeferkitError] = {}
        for name in chosen:
            try:
                check_hindsight(name, stream)
                check_installed([name])
                if name == "achievable":
                    check_achievable(stream)
                if is_learner(name):
                    make_learner(name, stream, [total] * n_resources, seed=seed)
                Spec.of(world, parameters, policy=name, budget=budget, feedback=feedback)
            except DeferkitError as error:
                errors[name] = error
        able = [name for name in chosen if name not in errors]
        if not able:
            raise next(iter(errors.values()))
        failures = {name: str(error) for name, error in errors.items()}
        return cls(world, parameters, able, budget, stream, remarks, failures)

    def title(self, *, mean_budget: float, feedback: str, trials: int, seed: int) -> str:
        """Return what stands above the table."""
        settings = "".join(
            f", {flag_of(name)[2:]} {value}" for name, value in self.parameters.items() if name != "horizon"
        )
        share = f" ({self.budget})" if not self.budget.replace(".", "").isdigit() else ""
        return (
            f"{self.world}{settings}, {self.stream.n_tasks:,} tasks, budget {mean_budget:,.{decimals(mean_budget)}f}"
            f"{share}, {feedback} feedback, {trials} {'trial' if trials == 1 else 'trials'} from seed {seed}"
        )


def decimals(amount: float) -> int:
    """Return how many decimals an amount is shown with: small ones need some.

    >>> decimals(2_000.0), decimals(2.4)
    (0, 2)
    """
    return 0 if amount == 0 or amount >= 100 or amount % 1 == 0 else 2


def tight(total: float, stream: TaskStream) -> str | None:
    """Return a remark if a budget is not much more than the dearest task may cost."""
    dearest = sure_cost(stream)
    if stream.truth is None and UNSPENT_SHARE * total < dearest <= total < askable_costs(stream).sum():
        return (
            f"One task can cost {dearest:,.{decimals(dearest)}f}, and that much is kept back to the end: up to"
            f" {100 * dearest / total:.0f} % of the budget may stay unspent."
        )
    if not 0 < total < dearest:
        return None
    return (
        f"A budget of {total:,.{decimals(total)}f} is less than one task can cost ({dearest:,.{decimals(dearest)}f}):"
        " nobody is asked, because that might not fit."
    )


def heavy(world: str, parameters: Mapping[str, Any], budget: str, stream: TaskStream) -> str | None:
    """Return a proposal to hold less than the largest cost, if that is far above the mean and much of the budget.

    The command that it names shows what a smaller hold changes. It needs tasks whose outcomes are all known.
    """
    allowance, dearest = Allowance.from_text(budget), sure_cost(stream)
    if allowance.hold or stream.truth is not None or not stream.complete or stream.costs.shape[1:] != (1, 1):
        return None
    mean, total = float(askable_costs(stream).mean()), allowance.total(stream)
    if dearest <= HEAVY * mean or not HEAVY_SHARE * total < dearest or total >= askable_costs(stream).sum():
        return None
    return (
        f"The largest cost is {dearest / mean:,.0f} times the mean. If reviews can be stopped, less need be kept back:"
        f" {hold_command(world, parameters, budget)}"
    )


def hold_command(world: str, parameters: Mapping[str, Any], budget: str) -> str:
    """Return the command that shows what a smaller hold changes.

    >>> hold_command("new.csv", {"cost": "my minutes", "after": "old.csv"}, "10%")
    "deferkit run old.csv --then new.csv --cost 'my minutes' --budget 10% --hold auto"
    """
    terms, total = Allowance.from_text(budget), budget.partition(" every ")[0].partition(" until ")[0]
    files = [str(parameters["after"]), "--then", world] if parameters.get("after") else [world]
    given = [part for name, value in parameters.items() if name != "after" for part in (flag_of(name), str(value))]
    given += ["--budget", total, *(["--every", terms.every] if terms.every else [])]
    given += [*(["--carry", f"{terms.carry:g}"] if terms.carry else []), *(["--until-end"] if terms.until_end else [])]
    return shlex.join(["deferkit", "run", *files, *given, "--hold", "auto"])


def kept_back(allowance: Allowance, stream: TaskStream) -> str | None:
    """Return a remark on what pending reviews keep back, where outcomes come late."""
    total, dearest = allowance.total(stream), sure_cost(stream)
    if allowance.hold or not stream.delay or not 0 < total < float("inf"):
        return None
    return (
        f"A pending review holds {dearest:,.{decimals(dearest)}f}, the most that it can cost: three of them hold"
        f" {300 * dearest / total:.0f} % of the budget. Reviews that can be stopped need not: --hold auto."
    )


def lost(stream: TaskStream, chosen: Sequence[str]) -> str:
    """Return a remark on tasks where the human was never asked."""
    n = stream.n_tasks - int(stream.askable.sum())
    picked = f" So these are compared: {', '.join(chosen)}." if chosen else ""
    return (
        f"In {n:,} of {stream.n_tasks:,} tasks the human was never asked (reward or cost is missing):"
        f" nobody can be asked there now, and OPT, gain and regret are not known.{picked}"
    )
