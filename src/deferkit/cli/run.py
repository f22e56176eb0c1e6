"""`deferkit run`: policies compared on a table or a simulated world."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import polars as pl
import typer
from rich.table import Table

from deferkit.cli import FAILED, INTERRUPTED, options
from deferkit.cli.app import app, aside, console
from deferkit.cli.options import flag_of
from deferkit.cli.output import bar, number, plain_table
from deferkit.errors import DeferkitError, StudyFailed
from deferkit.learn.core import FEEDBACKS
from deferkit.study.achievable import check_achievable, is_achievable_known, with_shares
from deferkit.study.allowance import Allowance, askable_costs, remark
from deferkit.study.engines import ENGINES, make_engine
from deferkit.study.policy_registry import (
    POLICIES,
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
from deferkit.study.timed_trial import is_timed
from deferkit.study.trial import FIGURES
from deferkit.study.trial_store import (
    Trial,
    TrialStore,
    check_results_file,
    is_results_file,
    results_frame,
    write_frame,
)
from deferkit.worlds import WORLDS, make_world
from deferkit.worlds.base import TaskStream

UNSPENT_PCT = 50  # of the budget: a learner that leaves more says why
AS_GOOD = {
    "model-only": "asking brings nothing",
    "arbitrary-human": "",
    "random": "",
    "threshold": "",
    "best-reject": "it knows its best threshold in advance",
    "confidence-quantile": "",
}  # rules that need no learner, the simplest first, and what to know about one
SMALL = 100  # a sum of rewards below this is shown with decimals


def summaries(frame: pl.DataFrame, policies: Sequence[str]) -> list[dict[str, Any]]:
    """Return, for each policy, mean and standard deviation over trials of all that is measured; None if unknown.

    >>> names = (*FIGURES, "model", "seed", "asked_budget", "representation")
    >>> frame = pl.DataFrame({"policy": ["a", "a"], **{name: [1.0, 3.0] for name in names}})
    >>> row = summaries(frame, ["a"])[0]
    >>> row["gain"], round(row["gain_sd"], 3)
    (2.0, 1.414)
    """
    result = []
    frame = with_shares(frame)
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
    for rule, note in AS_GOOD.items() if len(own) else ():
        if rule in policies:
            ahead = (own["reward"] - frame.filter(policy=rule).sort("seed")["reward"]).to_numpy()
            error = float(ahead.std(ddof=1)) / len(ahead) ** 0.5 if len(ahead) > 1 else 0.0
            if float(ahead.mean()) <= 2 * error:
                said.append(f"{rule} does as well here{f' ({note})' if note else ''}.")
                break
    return said


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


def outcome_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of policies."""
    known = has_achievable(rows)  # where it is, it says more than per cent of a reward that the model has by itself
    share, shown = ("of_achievable", "ach. %") if known else ("pct_opt", "% of OPT")
    table = plain_table(title, ("policy",), ("reward", shown, "gain %", "regret", "spent %", "asked %", "µs"))
    digits = 0 if max(abs(row["reward"] or 0.0) for row in rows) >= SMALL else 2
    for row in rows:
        us = row["us_per_step"]
        table.add_row(
            row["policy"],
            number(row["reward"], digits),
            number(row[share], 1 if known else 2),
            number(row["gain"], 1, row["gain_sd"]),
            number(row["regret"], digits),
            number(row["spent_pct"], 1),
            number(row["defer_rate"], 1),
            number(us, 2 if (us or 0) < 10 else 1 if us < 100 else 0).replace(",", ""),  # the line is full
        )
    return table


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


@app.command()
@options.with_world_options
def run(
    world: Annotated[
        str, typer.Argument(help=f"Which tasks: {', '.join(WORLDS)}, a CSV, Parquet or Excel file, or module:name")
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            help="In units of cost (2000, the default for synthetic tasks), of tasks (0.1T) or of the cost of always"
            " asking (10%, the default for all others); or inf"
        ),
    ] = None,
    every: options.Every = None,
    carry: options.Carry = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="The budget must last until the last task, however many come")
    ] = False,
    hold: Annotated[
        str | None,
        typer.Option(help="What is held for a review that can be stopped: auto, or an amount; else its largest cost"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Any number of times. There is: " + ", ".join(POLICIES) + "; or module:name"),
    ] = None,
    feedback: Annotated[str, typer.Option(help="What is observed: " + ", ".join(FEEDBACKS))] = "full",
    trials: Annotated[int, typer.Option(help="Number of streams", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Of the first stream", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw it as well, in RESULTS/figures")] = False,
    then: Annotated[
        str | None,
        typer.Option(
            help="A table of new tasks: WORLD is then one of past tasks, which learners start from",
            rich_help_panel=options.TABLE,
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="A file (.parquet, .csv): write raw results there, a row for each trial. A folder: keep trials in it,"
            " so that a run goes on where it stopped"
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; with one, the times are the truest", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="Where trials run: " + ", ".join(ENGINES))] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster")] = None,
    data: options.Data = None,
    *,
    parameters: Mapping[str, Any],
) -> None:
    """Run tasks through policies and show the outcome of each."""
    if then is not None:
        world, parameters = options.following(world, then, parameters)
    options.use_data(data)
    where = make_engine(engine, workers=workers, address=address)
    raw, folder = file_or_folder(results)
    store = TrialStore(None if folder is None else folder / "trials")
    budget = options.with_terms(budget, every=every, carry=carry, until_end=until_end, hold=hold)
    asked = Comparison.of(world, parameters, policy, budget, seed, feedback)
    trace = "path" if plot else ""
    specs = {
        name: Spec.of(world, parameters, budget=asked.budget, feedback=feedback, trace=trace, **plain_name(name))
        for name in asked.measured
    }
    wanted = [(spec, seed + i) for i in range(trials) for spec in specs.values()]
    stopped = False
    failed: list[tuple[Trial, str]] = []
    with bar() as progress:
        job = progress.add_task("trials", total=count_missing(wanted, store))
        try:
            run_study(wanted, store=store, engine=where, progress=lambda n: progress.advance(job, n), failed=failed)
        except KeyboardInterrupt:
            stopped = True
    failures = asked.failures | failures_of(failed, trials)
    names = {spec.key: name for name, spec in specs.items()}
    measured = [name for name in asked.measured if name not in failures]
    policies = [name for name in asked.shown if name in measured]
    if not policies:
        name, why = next(iter(failures.items()))
        raise StudyFailed(f"All policies failed. First: {name}: {why}")
    frame = named_apart(table([trial for trial in wanted if names[trial[0].key] in measured], store))
    # policies are compared on the same streams, so that one which some of them have not seen does not count
    frame = frame.filter(pl.len().over("seed") == len(measured)) if len(frame) else frame
    if frame.is_empty():
        aside.print("Stopped before the first trial was done.")
        raise typer.Exit(INTERRUPTED)
    if raw is not None:
        write_frame(results_frame(store.rows(trial for trial in wanted if trial in store)), raw)
    done = frame["seed"].n_unique()
    if stopped:
        aside.print(f"Stopped: {done} of {trials} streams were done.", highlight=False)
    rows = summaries(frame, policies)
    title = asked.title(mean_budget=float(frame["budget"].to_numpy().mean()), feedback=feedback, trials=done, seed=seed)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        console.print(outcome_table(title, rows))
        console.print(legend(rows, truth_known=asked.stream.truth is not None), highlight=False)
    for said in [
        *asked.remarks,
        *brought_by_past(rows),
        *remarks_on_default(frame, policies),
    ]:  # remarks go with the numbers, but not into output for programs
        (aside if as_json else console).print(said, highlight=False, markup=False)
    if plot:
        path = draw(frame.filter(pl.col("policy").is_in(policies)), folder or Path("results"), title, asked)
        (aside if as_json else console).print(f"figure: {path}", highlight=False, markup=False, soft_wrap=True)
    end(failures, stopped=stopped)


def file_or_folder(results: Path | None) -> tuple[Path | None, Path | None]:
    """Return the file for raw results, or the folder that trials are kept in."""
    if results is None or not is_results_file(results):
        return None, results
    check_results_file(results)
    return results, None


def end(failures: Mapping[str, str], *, stopped: bool) -> None:
    """Print what failed, and leave with the exit code that says so."""
    for name, why in failures.items():
        aside.print(f"error: {name}: {why}", highlight=False, markup=False, soft_wrap=True)
    if stopped:
        raise typer.Exit(INTERRUPTED)
    if failures:
        raise typer.Exit(FAILED)


def draw(frame: pl.DataFrame, folder: Path, title: str, asked: Comparison) -> Path:
    """Draw a comparison, and return where the figure is."""
    from deferkit.study.drawing.figures import draw_comparison  # noqa: PLC0415 - a second to import

    return draw_comparison(frame, folder, title, asked.stream.remark)


def failures_of(failed: Sequence[tuple[Trial, str]], trials: int) -> dict[str, str]:
    """Return the failures of policies, in one line each: one that failed in a single stream cannot be compared."""
    by_policy: dict[str, list[str]] = {}
    for (spec, _), why in failed:
        by_policy.setdefault(name_of(spec), []).append(why.partition("\n")[0])
    return {name: f"failed in {len(all_)} of {trials} streams ({all_[0]})" for name, all_ in by_policy.items()}
