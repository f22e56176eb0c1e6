"""Drift reports of a learner along a stream: when, and of which targets."""

import time
import warnings

import numpy as np

from deferkit.errors import LinkWarning
from deferkit.learn.deferrer import Deferrer
from deferkit.study.policy_registry import PolicyRun
from deferkit.worlds.base import TaskStream

STEP = 50  # tasks between two looks at the alarms: no target raises two within so few


def run_and_watch(learner: Deferrer, stream: TaskStream, feedback: str) -> tuple[PolicyRun, dict[str, list[float]]]:
    """Run a learner over a stream; return how many alarms each target had, and when those of the model came."""
    routes, prices = [], []
    alarms: dict[str, int] = {}
    alarm_at: list[float] = []
    begin = time.perf_counter()
    for start in range(0, stream.n_tasks, STEP):
        part = slice(start, start + STEP)
        rewards = {name: stream.rewards[part, i] for i, name in enumerate(learner.settings.deciders)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkWarning)  # graded rewards switch an automatic link at the first task
            run = learner.run(stream.contexts[part], rewards, stream.costs[part], feedback=feedback)
        routes.append(run.routes)
        prices.append(run.prices)
        if learner.summary().drifts > sum(alarms.values()):
            for drift in learner.drifts():
                if drift.decision >= start:
                    alarms[drift.target] = alarms.get(drift.target, 0) + 1
                    alarm_at += [float(drift.decision)] if drift.target == "model" else []
    us = (time.perf_counter() - begin) / stream.n_tasks * 1e6
    targets = [*learner.settings.deciders, *(f"cost of {expert}" for expert in learner.settings.experts)]
    counts = {"alarms": [float(alarms.get(target, 0)) for target in targets], "alarm_at": alarm_at}
    return PolicyRun(np.concatenate(routes), np.concatenate(prices), us), counts
