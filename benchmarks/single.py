"""How long one decision and one observation take, called one at a time, beside the libraries that users pick instead.

20 features, two arms, one thread, the same tasks for all, bandit feedback: what is observed is the reward of the
arm that was chosen (and by deferkit its cost, which the others do not learn). Each library gets the contexts in the
form that it takes (rows, dictionaries, text), made before the clock starts. All take the same first tasks without the
clock; the slow ones then stop earlier. Deferkit keeps a budget and a ledger of its decisions; the others do not.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import math
import random
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from measure import (
    RIDGE,
    Effort,
    Round,
    Tasks,
    Times,
    clock,
    draw_tasks,
    interleave,
    make_console,
    make_learner,
    make_table,
    setting,
)
from rich.table import Table

from deferkit import Deferrer, Encoder

N_FEATURES = 20
NUMBERS = ("amount", "age", "score")
LEVELS = {"country": ("de", "es", "fr", "it"), "product": ("card", "credit", "insurance")}
ARMS = (0, 1)
ALPHA = 0.08  # width of the intervals of LinUCB
WARM_UP = 200  # tasks before the clock starts
FAST, SLOW = 20_000, 1_000  # tasks on the clock

Step = Callable[[int], object]
"""Decides the task of this number and observes what came of it."""


def deferkit_step(deferrer: Deferrer, contexts: Sequence[Any], tasks: Tasks) -> Step:
    rewards, costs = tasks.rewards.tolist(), tasks.costs.tolist()

    def step(i: int) -> None:
        decision = deferrer.decide(contexts[i])
        if decision.route == "model":
            deferrer.observe(decision.id, {"model": rewards[i][0]})
        else:
            deferrer.observe(decision.id, {"human": rewards[i][1]}, costs[i])

    return step


def deferkit_of(pacing: str) -> Callable[[Tasks], Step]:
    def make(tasks: Tasks) -> Step:
        return deferkit_step(make_learner(N_FEATURES, len(tasks), pacing=pacing), list(tasks.contexts), tasks)

    return make


def deferkit_encoder(tasks: Tasks) -> Step:
    """Rows of five named columns: three numbers, and two categories that depend on the context too."""
    encoder = Encoder(numbers=NUMBERS, categories=LEVELS)
    largest = [np.argmax(tasks.contexts[:, : len(levels)], axis=1).tolist() for levels in LEVELS.values()]
    rows = [
        dict(zip(NUMBERS, numbers[-len(NUMBERS) :], strict=True))
        | {name: levels[place] for (name, levels), place in zip(LEVELS.items(), places, strict=True)}
        for numbers, *places in zip(tasks.contexts.tolist(), *largest, strict=True)
    ]
    return deferkit_step(make_learner(encoder, len(tasks)), rows, tasks)


def plain_numpy(tasks: Tasks) -> Step:
    """LinUCB as a competent user of numpy writes it: an inverse for each arm, updated by Sherman and Morrison."""
    inverses = [np.eye(N_FEATURES) / RIDGE for _ in ARMS]
    moments = [np.zeros(N_FEATURES) for _ in ARMS]
    thetas = [np.zeros(N_FEATURES) for _ in ARMS]
    contexts, rewards = list(tasks.contexts), tasks.rewards.tolist()

    def step(i: int) -> None:
        x = contexts[i]
        products = [inverse @ x for inverse in inverses]
        spreads = [x @ product for product in products]
        bounds = [theta @ x + ALPHA * math.sqrt(spread) for theta, spread in zip(thetas, spreads, strict=True)]
        arm = bounds.index(max(bounds))
        inverses[arm] -= np.outer(products[arm], products[arm]) / (1.0 + spreads[arm])
        moments[arm] += rewards[i][arm] * x
        thetas[arm] = inverses[arm] @ moments[arm]

    return step


def vowpal_wabbit(tasks: Tasks) -> Step:
    """Contextual bandit of VW: the faster of its two ways, which parses the text of a task only once.

    An example must be set up again once it has a label: VW learns nothing from one that was set up without.
    """
    workspace = import_module("vowpalwabbit").Workspace("--cb_explore 2 --quiet")
    texts = ["| " + " ".join(f"{i}:{value:.6g}" for i, value in enumerate(row)) for row in tasks.contexts.tolist()]
    rewards = tasks.rewards.tolist()
    uniform = random.Random(0).random

    def step(i: int) -> None:
        example = workspace.example(texts[i])
        chances = workspace.predict(example)
        arm = 0 if uniform() < chances[0] else 1
        example.unsetup_example()
        example.set_label_string(f"{arm + 1}:{-rewards[i][arm]}:{chances[arm]}")
        workspace.learn(example)
        workspace.finish_example(example)

    return step


def river(tasks: Tasks) -> Step:
    policy = import_module("river.bandit").LinUCBDisjoint(seed=0)
    contexts, rewards = [dict(enumerate(row)) for row in tasks.contexts.tolist()], tasks.rewards.tolist()
    arms = list(ARMS)

    def step(i: int) -> None:
        arm = policy.pull(arms, context=contexts[i])
        policy.update(arm, contexts[i], rewards[i][arm])

    return step


def mabwiser(tasks: Tasks) -> Step:
    """LinUCB of MABWiser, which wants a first fit before it predicts: one task for each arm."""
    module = import_module("mabwiser.mab")
    bandit = module.MAB(list(ARMS), module.LearningPolicy.LinUCB(alpha=ALPHA))
    contexts, rewards = [row[None, :] for row in tasks.contexts], tasks.rewards
    bandit.fit(np.array(ARMS), rewards[ARMS, ARMS], tasks.contexts[list(ARMS)])

    def step(i: int) -> None:
        arm = bandit.predict(contexts[i])
        bandit.partial_fit(np.array([arm]), rewards[i, arm : arm + 1], contexts[i])

    return step


def contextualbandits(tasks: Tasks) -> Step:
    """LinUCB of contextualbandits in double precision, which is the faster one, as the contexts need no conversion."""
    online = import_module("contextualbandits.online")
    policy = online.LinUCB(len(ARMS), alpha=ALPHA, fit_intercept=False, use_float=False, random_state=1)
    contexts, rewards = [row[None, :] for row in tasks.contexts], tasks.rewards

    def step(i: int) -> None:
        arms = policy.predict(contexts[i])
        policy.partial_fit(contexts[i], arms, rewards[i, arms])

    return step


class Contender(NamedTuple):
    """One row of the table."""

    name: str
    package: str  # what is imported, and whose version is shown
    n_steps: int
    make: Callable[[Tasks], Step]


BASE = "deferkit, default"
ENCODED = "deferkit, encoder of 5 columns"
CONTENDERS = (
    Contender(BASE, "deferkit", FAST, deferkit_of("resolve")),
    Contender("deferkit, gradient", "deferkit", FAST, deferkit_of("gradient")),
    Contender(ENCODED, "deferkit", FAST, deferkit_encoder),
    Contender("plain numpy LinUCB", "numpy", FAST, plain_numpy),
    Contender("VW cb_explore", "vowpalwabbit", FAST, vowpal_wabbit),
    Contender("river LinUCBDisjoint", "river", SLOW, river),
    Contender("contextualbandits LinUCB", "contextualbandits", SLOW, contextualbandits),
    Contender("MABWiser LinUCB", "mabwiser", SLOW, mabwiser),
)


def missing(package: str) -> str:
    """Return why a package cannot be imported, or nothing."""
    try:
        import_module(package)
    except ImportError as error:
        return str(error)
    return ""


def version_of(package: str) -> str:
    """Return the version of a package, of deferkit also where it is not installed but on the path."""
    return str(getattr(import_module(package), "__version__", None) or version(package))


def draw_stream(n_steps: int) -> Tasks:
    """Return the tasks before the clock starts, and this many on the clock."""
    return draw_tasks(N_FEATURES, WARM_UP + n_steps, np.random.default_rng(N_FEATURES))


def round_of(contender: Contender, tasks: Tasks, n_steps: int) -> Round:
    def once() -> float:
        step = contender.make(tasks)
        for i in range(WARM_UP):
            step(i)

        def work() -> None:
            for i in range(WARM_UP, WARM_UP + n_steps):
                step(i)

        return clock(work, n_steps)

    return once


def time_table(times: Times, effort: Effort) -> Table:
    table = make_table(["library", "version"], ["steps", "µs a pair", "÷ deferkit"])
    for name, package, n_steps, _ in CONTENDERS:
        if name in times.rounds:
            speed = f"{times.best(name):.2f}"
            table.add_row(name, version_of(package), f"{n_steps // effort.part:,}", speed, times.ratio(name, BASE))
        else:
            table.add_row(name, "–", "–", "not installed", "–")
    return table


def main() -> None:
    effort = Effort.from_command_line(__doc__, n_rounds=15)
    console = make_console()
    tasks = draw_stream(FAST // effort.part)
    reasons = {contender.name: missing(contender.package) for contender in CONTENDERS}
    there = {c.name: round_of(c, tasks, c.n_steps // effort.part) for c in CONTENDERS if not reasons[c.name]}
    with console.status("timing …"):
        times = interleave(there, effort.n_rounds)
    console.print(
        f"One decide and one observe, d = {N_FEATURES}, 2 arms, T = {len(tasks):,}, bandit feedback\n"
        f"{setting(effort)};\n"
        f"after the same {WARM_UP} tasks without the clock, as many of the same tasks as the column of steps says"
    )
    console.print(time_table(times, effort))
    for name, reason in reasons.items():
        if reason:
            console.print(f"{name}: {reason}")


if __name__ == "__main__":
    main()
