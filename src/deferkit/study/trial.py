"""Runs policies on one stream and measures their outcomes."""

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from deferkit.errors import SpendingWarning
from deferkit.study.achievable import Achievable
from deferkit.study.allowance import Allowance
from deferkit.study.coverage import run_and_measure, run_and_watch
from deferkit.study.optimum import Benchmark
from deferkit.study.policy_registry import OPTIMA, check_hindsight, make_learner, run_policy
from deferkit.study.spec import Spec
from deferkit.study.timed_trial import is_timed, run_timed
from deferkit.worlds import make_world
from deferkit.worlds.base import Floats, TaskStream

POINTS = 100  # of a path


class Outcome(NamedTuple):
    """The outcome of a policy on a stream.

    Rewards are expected ones where the truth is known, else realised; OPT and ModelOnly are on just the same tasks.
    Where some outcomes are not known, nobody knows OPT, and what is measured against it is NaN.
    """

    reward: float
    pct_opt: float
    gain: float  # per cent of what lies between ModelOnly and OPT; NaN if nothing does
    regret: float
    spent: float  # realised, of the first resource
    spent_pct: float  # of the budget, the largest of all resources; NaN if it is 0 or without end
    defer_rate: float  # per cent
    us_per_step: float  # NaN where no learner ran
    budget: float
    opt: float  # reward of OPT
    model: float  # reward of ModelOnly
    opt_price: float  # λ* of OPT, of the first resource
    opt_spent: float  # what OPT is expected to spend on just these tasks; the budget, on average over streams
    gained_se: float  # standard error of reward − ModelOnly, if the tasks are a sample


FIGURES = Outcome._fields[:8]
"""What tables and JSON show of an outcome."""


def of_chosen(choice: Floats, outcomes: Floats) -> Floats:
    """Return outcomes times the probability that they were chosen: what was not chosen counts nothing, known or not.

    >>> of_chosen(np.array([1.0, 0.0]), np.array([0.5, np.nan]))
    array([0.5, 0. ])
    """
    return np.where(choice == 0.0, 0.0, choice * outcomes)


class Judge:
    """Measures policies on one stream, against OPT for each budget."""

    def __init__(self, stream: TaskStream) -> None:
        self.stream = stream
        self._benchmark = Benchmark(stream) if stream.complete else None
        self._others: dict[str, Benchmark] = {}
        self._achievable: Achievable | None = None
        self._optima: dict[tuple[float, ...], tuple[Floats, Floats]] = {}

    def optimum(self, budgets: Sequence[float]) -> tuple[Floats, Floats]:
        """Return the choice [n, deciders] of OPT and its prices, solved once for each budget; NaN if nobody knows."""
        key = tuple(budgets)
        if key not in self._optima:
            unknown = np.full(self.stream.rewards.shape, math.nan), np.full(len(budgets), math.nan)
            self._optima[key] = unknown if self._benchmark is None else self._benchmark.at(budgets)
        return self._optima[key]

    def chosen_by(self, name: str, budgets: Sequence[float]) -> Floats:
        """Return the choice [n, deciders] of an optimum: OPT, static, informed or that of hindsight."""
        if name == "opt" or (name == "informed" and self.stream.hidden is None):
            return self.optimum(budgets)[0]
        if name not in self._others:
            stream = self.stream
            if name == "informed" and stream.hidden is not None:
                # as if what was expected had come
                stream = stream._replace(rewards=stream.hidden.rewards, costs=stream.hidden.costs)
            self._others[name] = Benchmark(stream, hindsight=name == "hindsight", knows_phase=name != "static")
        return self._others[name].at(budgets)[0]

    def achievable(self, budgets: Sequence[float]) -> Floats:
        """Return the choice of the best rule of the context: OPT where the truth is known, else an estimate of it."""
        if self.stream.truth is not None:
            return self.optimum(budgets)[0]
        if self._achievable is None:
            self._achievable = Achievable(self.stream)
        return self._achievable.at(budgets[0])

    def outcome(
        self, choice: Floats, budgets: Sequence[float], us: float = math.nan, *, realised: bool = False
    ) -> Outcome:
        """Return the outcome of a policy that chose deciders with these probabilities [n, deciders].

        `realised` judges everybody by the outcomes that came, where a policy has seen them.
        """
        rewards, costs = self.stream.known()
        if realised:
            rewards = self.stream.rewards
        best, price = self.optimum(budgets)
        model_only = np.zeros(rewards.shape)
        model_only[:, 0] = 1.0
        reward, top, floor = (float(of_chosen(each, rewards).sum()) for each in (choice, best, model_only))
        gained = of_chosen(choice, rewards).sum(axis=1) - rewards[:, 0]
        spent = of_chosen(choice[:, 1:, None], self.stream.costs).sum(axis=(0, 1))
        used = [100 * s / b for s, b in zip(spent, budgets, strict=True) if 0 < b < math.inf]
        return Outcome(
            reward=reward,
            pct_opt=100 * reward / top if top > 0 else math.nan,
            gain=100 * (reward - floor) / (top - floor) if top > floor + 1e-9 * abs(floor) else math.nan,
            regret=top - reward,
            spent=float(spent[0]),
            spent_pct=float(max(used)) if used else math.nan,
            defer_rate=100 * float(choice[:, 1:].sum()) / self.stream.n_tasks,
            us_per_step=us,
            budget=budgets[0],
            opt=top,
            model=floor,
            opt_price=float(price[0]),
            opt_spent=float(of_chosen(best[:, 1:], costs[:, :, 0]).sum()),
            gained_se=float(gained.std() * math.sqrt(len(gained))),
        )

    def path(self, choice: Floats, budgets: Sequence[float], prices: Floats | None) -> dict[str, list[float]]:
        """Return reward, regret, spending and price (its mean since the last point) at points of the stream."""
        rewards, _ = self.stream.known()
        best, _ = self.optimum(budgets)
        n = self.stream.n_tasks
        at = np.unique(np.linspace(0, n, min(POINTS, n) + 1).astype(int)[1:])
        reward = np.cumsum(of_chosen(choice, rewards).sum(axis=1))
        regret = np.cumsum(of_chosen(best, rewards).sum(axis=1)) - reward
        spent = np.cumsum(of_chosen(choice[:, 1:], self.stream.costs[:, :, 0]).sum(axis=1))
        path = {
            "at": at.astype(float).tolist(),
            "reward_at": reward[at - 1].tolist(),
            "regret_at": regret[at - 1].tolist(),
            "spent_at": spent[at - 1].tolist(),
        }
        if prices is not None:
            sums = np.concatenate([[0.0], np.cumsum(prices[:, 0])])[np.concatenate([[0], at])]
            path["price_at"] = (np.diff(sums) / np.diff(np.concatenate([[0], at]))).tolist()
        return path


def run_spec(spec: Spec, judge: Judge, seed: int) -> dict[str, Any]:
    """Return the outcome of a trial as a row of a table."""
    stream = judge.stream
    check_hindsight(spec.policy, stream)
    budgets = [Allowance.from_text(spec.budget).total(stream)] * stream.costs.shape[2]
    if spec.policy in OPTIMA:
        chosen = judge.achievable(budgets) if spec.policy == "achievable" else judge.chosen_by(spec.policy, budgets)
        done = judge.outcome(chosen, budgets, realised=spec.policy == "hindsight")._asdict()
        return done | (judge.path(chosen, budgets, None) if spec.trace == "path" else {})
    more: dict[str, list[float]] = {}
    if spec.trace == "coverage":
        learner = make_learner(spec.policy, stream, budgets, seed=seed, parameters=spec.policy_parameters)
        run, more = run_and_measure(learner, stream, spec.feedback)
    elif spec.trace == "alarms":
        learner = make_learner(spec.policy, stream, budgets, seed=seed, parameters=spec.policy_parameters)
        run, more = run_and_watch(learner, stream, spec.feedback)
    else:
        run = run_policy(
            spec.policy,
            stream,
            budgets,
            seed=seed,
            feedback=spec.feedback,
            parameters=spec.policy_parameters,
        )
    choice = np.eye(stream.rewards.shape[1])[run.routes]
    if spec.trace == "path":
        more = judge.path(choice, budgets, run.prices)
    told = {"representation": run.representation, "remark": run.remark}
    return judge.outcome(choice, budgets, run.us_per_step)._asdict() | told | more


def run_together(specs: Iterable[Spec], seed: int) -> list[dict[str, Any]]:
    """Run specifications of one world on one stream; a failure takes the place of the row that it prevented.

    >>> world = {"horizon": 500}
    >>> specs = [Spec.of("synthetic", world, policy=name, budget="50") for name in ("model-only", "opt")]
    >>> [row["gain"] for row in run_together(specs, seed=0)]
    [0.0, 100.0]
    """
    rows: list[dict[str, Any]] = []
    stream: TaskStream | None = None
    judge: Judge | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpendingWarning)  # the row has a remark
        for spec in specs:
            try:
                if stream is None:
                    stream = make_world(spec.world, spec.world_parameters).draw(seed)
                if is_timed(stream, spec.budget):
                    rows.append(run_timed(spec, stream, seed))
                    continue
                if judge is None:
                    judge = Judge(stream)
                rows.append(run_spec(spec, judge, seed))
            except Exception as error:  # of any kind: the other trials are saved before it is reported
                rows.append({"failure": f"{type(error).__name__}: {error}"})
    return rows
