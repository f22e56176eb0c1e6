"""Policies compared on a table or in a simulated world: `deferkit.compare`, which `deferkit run` calls."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from deferkit.display import Cells, html_block, html_table, number, text_table
from deferkit.errors import DeferkitError, StudyFailed
from deferkit.study.achievable import check_achievable, is_achievable_known, with_shares
from deferkit.study.allowance import Allowance, askable_costs, remark, with_terms
from deferkit.study.engines import Local, TrialEngine
from deferkit.study.policy_registry import (
    OPTIMA,
    check_hindsight,
    check_installed,
    check_policy_name,
    is_learner,
    make_learner,
    needs_hindsight,
    sure_cost,
    without_trees,
)
from deferkit.study.runner import count_missing, run_study, table
from deferkit.study.spec import Spec
from deferkit.study.statistics import as_float
from deferkit.study.timed_trial import is_timed
from deferkit.study.trial import FIGURES
from deferkit.study.trial_store import Trial, TrialStore
from deferkit.tables.history import frame_like, named_file
from deferkit.worlds import flag_of, make_world
from deferkit.worlds.base import TaskStream

if TYPE_CHECKING:
    import altair as alt

UNSPENT_PCT = 50  # of the budget: a learner that leaves more says why
AS_GOOD = {
    "model-only": "asking brings nothing",
    "arbitrary-human": "",
    "random": "",
    "threshold": "",
    "best-reject": "it knows its best threshold in advance",
    "confidence-quantile": "",
}  # rules that need no learner, the simplest first, and what to know about one
SURE = 2.0  # standard errors that are more than chance
SMALL = 100  # a sum of rewards below this is shown with decimals


def summaries(frame: pl.DataFrame, policies: Sequence[str]) -> list[dict[str, Any]]:
    """Return, for each policy, mean and standard deviation over trials of all that is measured; None if unknown.

    >>> names = (*FIGURES, "model", "seed", "asked_budget", "representation", "gained_se")
    >>> frame = pl.DataFrame({"policy": ["a", "a"], **{name: [1.0, 3.0] for name in names}})
    >>> row = summaries(frame, ["a"])[0]
    >>> row["gain"], round(row["gain_sd"], 3)
    (2.0, 1.414)
    """
    result = []
    frame = with_shares(frame)
    bound = is_bound(frame)
    for policy in policies:
        own = frame.filter(policy=policy)
        row: dict[str, Any] = {"policy": policy}
        for name in (*FIGURES, "of_achievable"):
            values = own[name].drop_nans().drop_nulls()
            row[name], row[f"{name}_sd"] = values.mean(), values.std()
        for suffix in ("", "_sd"):  # a fraction, as the library and the service have it; defer_rate is in per cent
            rate = row[f"defer_rate{suffix}"]
            row[f"deferral_rate{suffix}"] = None if rate is None else rate / 100
        row["representation"] = own["representation"][0]
        if not bound:  # others gain more: what was estimated is not what can be achieved
            row["of_achievable"] = row["of_achievable_sd"] = None
        result.append(row)
    return result


def remarks_on_default(frame: pl.DataFrame, policies: Sequence[str], default: str = "default") -> list[str]:
    """Return remarks on the default: the reason if it left most of its budget, and a simple rule that did as well.

    A rule did as well if the default was ahead by no more than two standard errors of the paired differences.

    >>> rows = {"policy": ["default", "best-reject"], "seed": [0, 0], "reward": [7.0, 7.5], "spent_pct": [3.0, 90.0]}
    >>> remarks = {"remark": ["asked 3 of 100; 97 % of the budget unspent: no cost is known yet.", None]}
    >>> for said in remarks_on_default(pl.DataFrame(rows | remarks), ["default", "best-reject"]):
    ...     print(said)
    default asked 3 of 100; 97 % of the budget unspent: no cost is known yet.
    best-reject does as well here (it knows its best threshold in advance).
    """
    own = frame.filter(policy=default).sort("seed")
    said = []
    spent = own["spent_pct"].drop_nans().drop_nulls()
    left = own.filter((pl.col("spent_pct") < 100 - UNSPENT_PCT) & (pl.col("remark") != ""))
    if len(left) and float(spent.to_numpy().mean()) < 100 - UNSPENT_PCT:
        of = "" if len(own) == 1 else f" in the stream of seed {left['seed'][0]}"
        said.append(f"{default}{of} {left['remark'][0]}")
    rules = [rule for rule in AS_GOOD if rule in policies] if len(own) else []
    for rule in rules:
        mean, error = mean_lead(own, frame.filter(policy=rule))
        if mean <= SURE * error:
            said.append(f"{rule} does as well here{f' ({AS_GOOD[rule]})' if AS_GOOD[rule] else ''}.")
            break
    return said


def mean_lead(own: pl.DataFrame, other: pl.DataFrame) -> tuple[float, float]:
    """Return the lead in reward of the one on the same streams, and its standard error; 0 of one stream."""
    ahead = (own.sort("seed")["reward"] - other.sort("seed")["reward"]).to_numpy()
    return float(ahead.mean()), float(ahead.std(ddof=1)) / len(ahead) ** 0.5 if len(ahead) > 1 else 0.0


def verdict(frame: pl.DataFrame, policies: Sequence[str], default: str = "default") -> list[str]:
    """Return the gain of the default against the best rule without learning, in words; empty if there is none.

    >>> rows = {"policy": ["default", "random"] * 2, "seed": [0, 0, 1, 1], "reward": [9.0, 5.0, 9.5, 6.0]}
    >>> paths = {"at": [[10.0, 20.0]] * 4, "reward_at": [[4.0, 9.0], [4.5, 5.0], [4.0, 9.5], [4.0, 6.0]]}
    >>> frame = pl.DataFrame(rows | paths | {"model": 4.0})
    >>> print(verdict(frame, ["default", "random"])[0])  # doctest: +NORMALIZE_WHITESPACE
    Verdict: default gains 5.25 over the model alone, the best rule without learning (random) 1.50: + 3.75 ± 0.25, which
    is more than chance. It is ahead from task 20 on.
    """
    rules = [rule for rule in AS_GOOD if rule in policies]
    own = frame.filter(policy=default)
    if default not in policies or not rules:
        return []
    best = max(rules, key=lambda rule: as_float(frame.filter(policy=rule)["reward"].mean()))
    other = frame.filter(policy=best)
    (lead, error), floor = mean_lead(own, other), as_float(own["model"].mean())
    gains = [as_float(each["reward"].mean()) - floor for each in (own, other)]
    digits = 0 if max(map(abs, (*gains, lead))) >= SMALL else 2
    shown = [number(gain, digits) for gain in gains]
    by = f"{'+' if lead >= 0 else '−'} {number(abs(lead), digits)}" + (f" ± {number(error, digits)}" if error else "")
    if own["seed"].n_unique() == 1:
        judged = "one stream does not tell whether that is chance"
    elif abs(lead) <= SURE * error:
        judged = "which may be chance: a rule without learning does as well here"
    else:
        judged = "which is more than chance" + ("" if lead > 0 else ": it does better here")
    pays = pays_from(own, other) if lead > SURE * error else None
    from_ = "" if pays is None else f" It is ahead from task {pays:,} on."
    return [
        f"Verdict: {default} gains {shown[0]} over the model alone, the best rule without learning ({best}) {shown[1]}:"
        f" {by}, {judged}.{from_}"
    ]


def pays_from(own: pl.DataFrame, other: pl.DataFrame) -> int | None:
    """Return the task from which on the one has earned more on average; None if that was not recorded."""
    if "reward_at" not in own.columns or own["at"].null_count() or other["at"].null_count():
        return None
    paths = [np.array(each.sort("seed")["reward_at"].to_list()).mean(axis=0) for each in (own, other)]
    behind = np.flatnonzero(paths[0] <= paths[1])
    return int(own["at"][0][int(behind[-1]) + 1 if len(behind) else 0])


def is_bound(frame: pl.DataFrame) -> bool:
    """Whether no policy without hindsight gains more than the estimate of what is achievable, but for chance."""
    best = frame.filter(policy="achievable")
    names = set(frame["policy"].unique()) - {"achievable", *OPTIMA}
    leads = (mean_lead(frame.filter(policy=name), best) for name in names if len(best))
    return not any(mean > SURE * error > 0 for mean, error in leads)


def has_achievable(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether it is known what was achievable."""
    return any(row["of_achievable"] is not None for row in rows)


def legend(rows: Sequence[dict[str, Any]], *, truth_known: bool) -> str:
    """Return the legend of the table; where the truth is known, OPT is what is achievable."""
    said = "mean ± sd over trials, µs a step; gain = (reward − ModelOnly)/(OPT − ModelOnly)"
    if has_achievable(rows):
        said += "; ach. = (reward − ModelOnly)/(achievable − ModelOnly)."
        if not truth_known:
            said += (
                " OPT knows every outcome in advance; achievable is what a rule of these columns could get, from"
                " predictions that have not seen the row"
            )
    return said


def outcome_cells(rows: Sequence[dict[str, Any]]) -> Cells:
    """Return head and rows of the table of policies."""
    known = has_achievable(rows)  # where it is, it says more than per cent of a reward that the model has by itself
    share, shown = ("of_achievable", "ach. %") if known else ("pct_opt", "% of OPT")
    digits = 0 if max(abs(row["reward"] or 0.0) for row in rows) >= SMALL else 2
    body = []
    for row in rows:
        us = row["us_per_step"]
        cells = [
            row["policy"],
            number(row["reward"], digits),
            number(row[share], 1 if known else 2),
            number(row["gain"], 1, row["gain_sd"]),
            number(row["regret"], digits),
            number(row["spent_pct"], 1),
            number(row["defer_rate"], 1),
            number(us, 2 if (us or 0) < 10 else 1 if us < 100 else 0).replace(",", ""),  # the line is full
        ]
        body.append(cells)
    return ["policy", "reward", shown, "gain %", "regret", "spent %", "asked %", "µs"], body


COLD = ", cold"  # behind the name of a learner that starts from nothing


def cold_name(policy: str) -> str:
    """Return the name of a learner that starts without the past tasks that there are."""
    return policy + COLD


def plain_name(name: str) -> dict[str, Any]:
    """Return policy and parameters of a specification by the name in the table.

    >>> plain_name("default"), plain_name("default, cold")
    ({'policy': 'default'}, {'policy': 'default', 'policy_parameters': {'warm_start': False}})
    """
    if not name.endswith(COLD):
        return {"policy": name}
    return {"policy": name.removesuffix(COLD), "policy_parameters": {"warm_start": False}}


def name_of(spec: Spec) -> str:
    """Return the name in the table by the specification."""
    return cold_name(spec.policy) if spec.policy_parameters.get("warm_start") is False else spec.policy


def named_apart(frame: pl.DataFrame) -> pl.DataFrame:
    """Return trials in which a learner that starts from nothing has a name of its own."""
    if "policy_warm_start" not in frame.columns:
        return frame
    cold = pl.col("policy_warm_start").eq_missing(other=False)
    return frame.with_columns(policy=pl.when(cold).then(pl.col("policy") + COLD).otherwise("policy"))


def brought_by_past(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return, for each learner, what its past brought against a start from nothing on the same tasks.

    >>> row = {"reward": 90.0, "gain": 60.0}
    >>> brought_by_past([{"policy": "default", **row}, {"policy": "default, cold", "reward": 80.0, "gain": 40.0}])
    ['The past brings default + 10 reward (gain 60.0 instead of 40.0 %).']
    """
    by_name = {row["policy"]: row for row in rows}
    said = []
    for name, row in by_name.items():
        cold = by_name.get(cold_name(name))
        if cold is not None:
            more = row["reward"] - cold["reward"]
            known = row["gain"] is not None and cold["gain"] is not None
            gains = f" (gain {row['gain']:.1f} instead of {cold['gain']:.1f} %)" if known else ""
            sign = "+" if more >= 0 else "−"
            said.append(f"The past brings {name} {sign} {abs(more):,.{0 if abs(more) >= 10 else 2}f} reward{gains}.")
    return said


class Defaults(NamedTuple):
    """Budget and policies of a comparison in a world, by default."""

    budget: str
    policies: tuple[str, ...]


DEFAULTS = Defaults("10%", ("model-only", "arbitrary-human", "best-reject", "default", "achievable", "opt"))
OF_WORLD = {
    "synthetic": Defaults("2000", ("model-only", "arbitrary-human", "best-reject", "paper", "default", "opt")),
}
"""Worlds with other defaults: in the paper's, its algorithm is compared, and the achievable optimum is OPT."""
TIMED = ("model-only", "arbitrary-human", "default", "opt")
"""Policies compared by default with a budget that has a period, an end or a hold."""
UNSPENT_SHARE = 0.1  # of the budget: a remark if more may stay unspent
HEAVY = 10.0  # means that the largest cost must be above for a smaller hold to be proposed
HEAVY_SHARE = 0.02  # of the budget that the largest cost must be for that


class Setup(NamedTuple):
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
    ) -> "Setup":
        """Return a comparison; a policy that cannot run on the world is among the failures.

        Where none can, the error of the first one is raised.

        >>> asked = Setup.of("synthetic", {"horizon": 100}, None, None, 0)
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
            kept_back(allowance, stream) or remark_if_tight(total, stream),
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
            remarks.append(remark_on_lost(stream, [] if policies else chosen))
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
        """Return the title of the table."""
        settings = "".join(
            f", {flag_of(name)[2:]} {value}" for name, value in self.parameters.items() if name != "horizon"
        )
        share = f" ({self.budget})" if not self.budget.replace(".", "").isdigit() else ""
        return (
            f"{self.world}{settings}, {self.stream.n_tasks:,} tasks, budget {mean_budget:,.{decimals(mean_budget)}f}"
            f"{share}, {feedback} feedback, {trials} {'trial' if trials == 1 else 'trials'} from seed {seed}"
        )


def decimals(amount: float) -> int:
    """Return the number of decimals of an amount in texts: small ones need some.

    >>> decimals(2_000.0), decimals(2.4)
    (0, 2)
    """
    return 0 if amount == 0 or amount >= 100 or amount % 1 == 0 else 2


def remark_if_tight(total: float, stream: TaskStream) -> str | None:
    """Return a remark if a budget is not much more than the highest cost of a task."""
    max_cost = sure_cost(stream)
    if stream.truth is None and UNSPENT_SHARE * total < max_cost <= total < askable_costs(stream).sum():
        return (
            f"One task can cost {max_cost:,.{decimals(max_cost)}f}, and that much is kept back to the end: up to"
            f" {100 * max_cost / total:.0f} % of the budget may stay unspent."
        )
    if not 0 < total < max_cost:
        return None
    return (
        f"A budget of {total:,.{decimals(total)}f} is less than one task can cost ({max_cost:,.{decimals(max_cost)}f}):"
        " nobody is asked, because that might not fit."
    )


def heavy(world: str, parameters: Mapping[str, Any], budget: str, stream: TaskStream) -> str | None:
    """Return a proposal to hold less than the largest cost, if that is far above the mean and much of the budget.

    The command that it names shows what a smaller hold changes. It needs tasks whose outcomes are all known.
    """
    allowance, max_cost = Allowance.from_text(budget), sure_cost(stream)
    if allowance.hold or stream.truth is not None or not stream.complete or stream.costs.shape[1:] != (1, 1):
        return None
    mean, total = float(askable_costs(stream).mean()), allowance.total(stream)
    if max_cost <= HEAVY * mean or not HEAVY_SHARE * total < max_cost or total >= askable_costs(stream).sum():
        return None
    return (
        f"The largest cost is {max_cost / mean:,.0f} times the mean. If reviews can be stopped, less need be kept back:"
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
    """Return a remark on the budget that pending reviews hold, where outcomes come late."""
    total, max_cost = allowance.total(stream), sure_cost(stream)
    if allowance.hold or not stream.delay or not 0 < total < float("inf"):
        return None
    return (
        f"A pending review holds {max_cost:,.{decimals(max_cost)}f}, the most that it can cost: three of them hold"
        f" {300 * max_cost / total:.0f} % of the budget. Reviews that can be stopped need not: --hold auto."
    )


def remark_on_lost(stream: TaskStream, chosen: Sequence[str]) -> str:
    """Return a remark on tasks where the human was never asked."""
    n = stream.n_tasks - int(stream.askable.sum())
    picked = f" So these are compared: {', '.join(chosen)}." if chosen else ""
    return (
        f"In {n:,} of {stream.n_tasks:,} tasks the human was never asked (reward or cost is missing):"
        f" nobody can be asked there now, and OPT, gain and regret are not known.{picked}"
    )


def failures_of(failed: Sequence[tuple[Trial, str]], trials: int) -> dict[str, str]:
    """Return the failures of policies, in one line each: one that failed in a single stream cannot be compared."""
    by_policy: dict[str, list[str]] = {}
    for (spec, _), why in failed:
        by_policy.setdefault(name_of(spec), []).append(why.partition("\n")[0])
    return {name: f"failed in {len(all_)} of {trials} streams ({all_[0]})" for name, all_ in by_policy.items()}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcomes of policies on the same streams of tasks, from `compare`.

    Attributes:
        title: The tasks, the budget, the feedback and the number of trials.
        rows: The figures of each policy: means, and standard deviations (`…_sd`) over trials.
        remarks: What is to be known about the tasks and the outcomes.
        failures: The policies that could not run, with the reason of each.
        trials: A row for each policy and stream.
        legend: What the columns of the table mean.
        subtitle: That of the figure.
        stopped: How many streams were done when Ctrl-C ended it; empty if it was not.
        table: The table that was given, or None: `to_frame` returns a frame of its kind.

    >>> found = compare("synthetic", budget=20, policies=["model-only", "default"], trials=2, horizon=200)
    >>> found.to_frame().columns[:2], [row["policy"] for row in found.rows]
    (['policy', 'reward'], ['model-only', 'default'])
    """

    title: str
    rows: list[dict[str, Any]]
    remarks: list[str]
    failures: dict[str, str]
    trials: pl.DataFrame
    legend: str
    subtitle: str = ""
    stopped: str = ""
    table: Any = None

    def __repr__(self) -> str:
        """Return the table and the remarks as text."""
        return "\n".join([self.title, text_table(outcome_cells(self.rows)), self.legend, *self.said])

    def _repr_html_(self) -> str:
        return html_block(self.title, html_table(outcome_cells(self.rows)), remarks=[self.legend, *self.said])

    @property
    def said(self) -> list[str]:
        """The remarks, and the policies that failed."""
        return [
            *filter(None, [self.stopped]),
            *self.remarks,
            *(f"{name} failed: {why}" for name, why in self.failures.items()),
        ]

    def to_frame(self) -> Any:
        """Return the figures as a frame, a row for each policy: of pandas if the table was one, else of polars."""
        return frame_like(self.table, pl.DataFrame(self.rows, infer_schema_length=None))

    def plot(self, *, columns: int = 3) -> "alt.TopLevelMixin":
        """Return the figure of `deferkit run --plot` as an Altair chart: gains, and regret and spending over time."""
        from deferkit.study.drawing.figures import comparison  # noqa: PLC0415 - a second to import

        shown = self.trials.filter(pl.col("policy").is_in([row["policy"] for row in self.rows]))
        return comparison(shown, self.title, self.subtitle, columns)

    def save(self, path: str | Path) -> Path:
        """Write a page with the figure, the table and the remarks, and return its path.

        Args:
            path: A file of HTML that needs no other file.

        Raises:
            UnwritableState: It cannot be written.
        """
        from deferkit.study.drawing.figures import write_page  # noqa: PLC0415 - a second to import

        return write_page(
            path, "deferkit: policies compared", self._repr_html_(), replace(self, title="").plot(columns=2)
        )


def compare(
    tasks: Any,
    *,
    budget: str | float | None = None,
    policies: Sequence[str] | None = None,
    every: str | None = None,
    carry: float | None = None,
    until_end: bool = False,
    hold: str | float | None = None,
    feedback: str = "full",
    trials: int = 10,
    seed: int = 0,
    workers: int = 1,
    **columns: Any,
) -> Comparison:
    """Compare policies on a table of tasks whose outcomes are known.

    Args:
        tasks: A frame of pandas or polars (eager or lazy), an Arrow table, columns by name, the path of a file, or the
            name of a simulated world.
        budget: An amount of cost (200), "0.1T" (of tasks), "10%" (of what asking always costs; the default for a
            table), or "inf".
        policies: Names of policies, those of `deferkit list`; by default the learner, simple rules and optima.
        every: The budget is that of a period: "day", "week", "month" or a length such as "7d"; needs `time`.
        carry: How many allowances can be carried over to the next period; 0 by default.
        until_end: The budget must last until the last task, however many come; needs `time`. False by default.
        hold: What is held for a review that can be stopped: "auto" or an amount; its largest cost by default.
        feedback: Which rewards are observed: "full" (default), "bandit" or "reviewed".
        trials: The number of streams: the rows in a new order each, unless `time` gives the order. 10 by default.
        seed: The seed of the first stream; 0 by default.
        workers: The number of processes; 1 by default.
        columns: Columns of the table: `context` ("x_*"; a name, a glob or a list of them), `model_reward`,
            `human_reward`, `cost`, `time`, `confidence`; `order` ("shuffled" or "file") and `after`, a file of past
            tasks. Or parameters of the simulated world.

    Returns:
        The outcomes: shown as a table, with `to_frame`, `plot` and `save`.

    Raises:
        InvalidArgument: If an argument or a cell of the table is wrong.
        StudyFailed: If no policy could run.

    >>> table = {"x_size": [0.0, 1.0] * 20, "model_reward": [1, 0] * 20, "human_reward": [1] * 40, "cost": [1.0] * 40}
    >>> found = compare(table, budget="20%", policies=["model-only", "default"], trials=2)
    >>> [(row["policy"], row["reward"]) for row in found.rows][0]
    ('model-only', 20.0)
    """
    with named_file(tasks, columns) as (world, parameters, as_said):
        asked = with_terms(
            None if budget is None else str(budget),
            every=every,
            carry=None if carry is None else f"{carry:g}",
            until_end=until_end,
            hold=None if hold is None else str(hold),
        )
        setup = Setup.of(world, parameters, policies, asked, seed, feedback)
        found = compare_policies(setup, feedback=feedback, trials=trials, seed=seed, engine=Local(workers))
        return replace(
            found,
            title=as_said(found.title),
            subtitle=as_said(found.subtitle),
            remarks=[as_said(each) for each in found.remarks],
            table=tasks,
        )


def compare_policies(
    setup: Setup,
    *,
    feedback: str = "full",
    trials: int = 10,
    seed: int = 0,
    store: TrialStore | None = None,
    engine: TrialEngine | None = None,
    started: Callable[[int], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Comparison:
    """Run the trials of a comparison that a store does not have; Ctrl-C ends it with the streams that are done.

    Args:
        setup: The tasks, the policies and the budget.
        feedback: Which rewards are observed.
        trials: The number of streams.
        seed: The seed of the first one.
        store: Where trials are kept; in memory by default.
        engine: Where trials run; in this process by default.
        started: Is called with the number of trials to run.
        progress: Is called with a number of trials that are done.

    Raises:
        StudyFailed: If no policy could run.
        KeyboardInterrupt: If it was stopped before the first stream was done.
    """
    store = TrialStore(None) if store is None else store
    shared = {"budget": setup.budget, "feedback": feedback, "trace": "path"}
    specs = {name: Spec.of(setup.world, setup.parameters, **shared, **plain_name(name)) for name in setup.measured}
    wanted = [(spec, seed + i) for i in range(trials) for spec in specs.values()]
    failed: list[tuple[Trial, str]] = []
    started(count_missing(wanted, store))
    stopped = False
    try:
        run_study(wanted, store=store, engine=engine, progress=progress, failed=failed)
    except KeyboardInterrupt:
        stopped = True
    failures = setup.failures | failures_of(failed, trials)
    names = {spec.key: name for name, spec in specs.items()}
    measured = [name for name in setup.measured if name not in failures]
    policies = [name for name in setup.shown if name in measured]
    if not policies:
        name, why = next(iter(failures.items()))
        raise StudyFailed(f"All policies failed. First: {name}: {why}")
    frame = named_apart(table([trial for trial in wanted if names[trial[0].key] in measured], store))
    # policies are compared on the same streams, so that one which some of them have not seen does not count
    frame = frame.filter(pl.len().over("seed") == len(measured)) if len(frame) else frame
    if frame.is_empty():
        raise KeyboardInterrupt
    done = frame["seed"].n_unique()
    rows = summaries(frame, policies)
    said = remarks_on_default(frame, policies)
    return Comparison(
        title=setup.title(
            mean_budget=float(frame["budget"].to_numpy().mean()), feedback=feedback, trials=done, seed=seed
        ),
        rows=rows,
        remarks=[*setup.remarks, *brought_by_past(rows), *said, *verdict(frame, policies)],
        failures=failures,
        trials=frame,
        legend=legend(rows, truth_known=setup.stream.truth is not None),
        subtitle=setup.stream.remark,
        stopped=f"Stopped: {done} of {trials} streams were done." if stopped else "",
    )
