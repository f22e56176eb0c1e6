"""Bulk learning: whole streams in one compiled loop, and warm starts from past rows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from deferkit.errors import expected
from deferkit.learn import context
from deferkit.learn.components import Components
from deferkit.learn.core import FEEDBACKS, revealed
from deferkit.learn.decisions import Decisions
from deferkit.learn.encode import FREEZE_AFTER
from deferkit.learn.outcomes import Floats
from deferkit.types import REASONS, Run

CHUNK = 8_192  # tasks between two reports of progress


def blank_run(n: int, resources: int, deciders: tuple[str, ...]) -> Run:
    """Return a run of n tasks, filled with zeros."""
    return Run(
        routes=np.zeros(n, dtype=np.int64),
        reasons=np.zeros(n, dtype=np.int64),
        propensities=np.zeros(n),
        prices=np.zeros((n, resources)),
        rewards=np.zeros(n),
        costs=np.zeros((n, resources)),
        deciders=deciders,
    )


class RowLearner:
    """Reads whole tables of tasks for a learner."""

    def __init__(self, components: Components, decisions: Decisions) -> None:
        self._settings = components.settings
        self._ledger = components.ledger
        self._contexts = components.contexts
        self._outcomes = components.outcomes
        self._representation = components.representation
        self._decisions = decisions

    def _read_rows(self, contexts: Any) -> tuple[list[dict[str, Any]] | None, Floats]:
        """Return rows of named features, None for vectors, and the contexts as a matrix."""
        rows = self._contexts.rows(contexts)
        return rows, self._contexts.matrix(contexts) if rows is None else self._contexts.encode(rows)


class BulkLoop(RowLearner):
    """Decides a stream of tasks with known outcomes, and observes each before the next."""

    def run(
        self,
        contexts: Any,
        rewards: Any,
        cost: Any,
        feedback: str,
        progress: Callable[[int], None] | None,
        at: Any = None,
    ) -> Run:
        """Return the routes, rewards and costs of a stream; `Deferrer.run` describes the arguments."""
        settings = self._settings
        if not isinstance(feedback, str) or feedback not in FEEDBACKS:
            raise expected("feedback", "call of run", "one of " + ", ".join(map(repr, FEEDBACKS)), feedback)
        rows, matrix = self._read_rows(contexts)
        n = len(matrix)
        values = context.as_rewards(rewards, settings.deciders, n, settings.reward_bounds, missing=False)
        fixed = self._ledger.view("known_cost")
        if cost is None:
            if np.isnan(fixed).any():
                raise expected("cost", "call of run", "given, unless all budgets have a fixed_cost", None)
            cost = np.tile(fixed, (n, 1, 1))
        costs = context.as_costs(cost, settings.experts, settings.resources, n)
        for expert in range(len(settings.experts)):
            self._outcomes.check_costs(costs[:, expert], expert, missing=False)
        times = self._decisions.times_of(at, n)
        run = blank_run(n, len(settings.budget), settings.deciders)
        done = 0
        while done < n:
            before = done
            if rows is not None and self._ledger.get("unsettled"):
                done = self._run_before_freeze(rows, matrix, values, costs, times, feedback, run, done)
            else:
                done = self._run_chunk(matrix, values, costs, times, feedback, run, done)
            if progress is not None:
                progress(done - before)
        self._decisions.warn_if_over()
        return run

    def _run_chunk(
        self, matrix: Floats, rewards: Floats, costs: Floats, times: Floats, feedback: str, run: Run, first: int
    ) -> int:
        """Decide and observe one chunk of tasks from `first` on; return the index of the next task."""
        ledger, representation = self._ledger, self._representation
        end = min(len(matrix), first + min(CHUNK, ledger.memory))
        representation.drop_old_tasks()  # views are valid until the next retraining
        until = min(representation.observations_until_retraining(), representation.decisions_until_upkeep())
        end = min(end, first + until)
        end = first + self._decisions.begin_chunk(times, first, end - first, stacklevel=6)
        decision, link_state = ledger.next_id, ledger.get("link_state")
        done = first + self._run_compiled(matrix[first:end], rewards, costs, times, feedback, run, first)
        representation.append_decided(matrix[first:done])
        representation.record_outcomes(decision, done - first)
        if ledger.get("link_state") != link_state:
            last = ledger.reward[ledger.slot(ledger.next_id - 1)]  # its outcome switched the link
            self._outcomes.link_switched(int(np.count_nonzero(~np.isnan(last))))
        representation.retrain_if_due()
        representation.refresh_window_if_due()
        return done

    def _run_before_freeze(
        self,
        rows: list[dict[str, Any]],
        matrix: Floats,
        rewards: Floats,
        costs: Floats,
        times: Floats,
        feedback: str,
        run: Run,
        first: int,
    ) -> int:
        """Decide and observe one task while the encoder's scales are not frozen; encode the rest once they are."""
        decision = self._decisions.decide_with(rows[first], at=times.item(first) if len(times) else None)
        route = self._settings.deciders.index(decision.route)
        seen = {self._settings.deciders[each]: float(rewards[first, each]) for each in revealed(feedback, route)}
        paid = costs[first, route - 1].tolist() if route else None
        self._outcomes.observe(decision.id, seen, None if paid is None else self._outcomes.reader.amount(paid))
        run.routes[first], run.reasons[first] = route, REASONS.index(decision.reason)
        run.propensities[first], run.rewards[first] = decision.propensity, rewards[first, route]
        run.costs[first] = paid if route else 0.0
        run.prices[first] = context.as_amount("price", decision.price, self._settings.resources)
        if not self._ledger.get("unsettled"):
            matrix[first + 1 :] = self._contexts.encode(rows[first + 1 :])
        return first + 1

    def _run_compiled(
        self, contexts: Floats, rewards: Floats, costs: Floats, times: Floats, feedback: str, run: Run, first: int
    ) -> int:
        end = first + len(contexts)
        self._ledger.move_open_decisions(len(contexts))
        self._ledger.grow_sample_store(len(contexts))
        return self._ledger.core.run(
            self._representation.transform(contexts),
            rewards[first:end],
            costs[first:end],
            times[first:end],
            FEEDBACKS.index(feedback),
            run.routes[first:end],
            run.reasons[first:end],
            run.propensities[first:end],
            run.prices[first:end],
            run.rewards[first:end],
            run.costs[first:end],
        )


class WarmStart(RowLearner):
    """Learns from labelled tasks that the learner did not decide."""

    def learn(self, contexts: Any, rewards: Any, expert: str | None, cost: Any) -> None:
        """Learn labelled tasks and shorten the warm-up; `Deferrer.warm_start` describes the arguments."""
        settings, ledger, encoder = self._settings, self._ledger, self._contexts.encoder
        name = settings.experts[0] if expert is None else expert
        expert_number = context.index_of(name, settings.experts, "expert") + 1
        rows, matrix = self._read_rows(contexts)
        values, costs = self._labels(rewards, cost, len(matrix), expert_number - 1)
        if encoder is not None and ledger.get("unsettled") and len(matrix) < FREEZE_AFTER:
            raise expected("contexts", "warm start", f"at least {FREEZE_AFTER} rows, for the scales", len(matrix))
        if rows and encoder is not None and ledger.get("unsettled"):
            self._decisions.freeze_encoder_on(encoder, rows)
            matrix = self._contexts.encode(rows)
        cost_expert = np.where(np.isnan(costs).any(axis=1), 0, expert_number)
        self._outcomes.switch_link_for(values)
        ledger.core.fill_rank_tables(matrix)
        self._representation.learn_labelled(matrix, values, costs, cost_expert)
        self._shorten_warm_up()
        self._count_costs(costs[cost_expert > 0])

    def _labels(self, rewards: Any, cost: Any, n: int, expert: int) -> tuple[Floats, Floats]:
        """Return checked rewards and costs, with NaN for unknown ones."""
        settings = self._settings
        values = context.as_rewards(rewards, settings.deciders, n, settings.reward_bounds, missing=True)
        if cost is None:
            return values, np.full((n, len(settings.budget)), np.nan)
        costs = np.ascontiguousarray(context.as_costs(cost, ("cost",), settings.resources, n)[:, 0])
        self._outcomes.check_costs(costs, expert, missing=True)
        return values, costs

    def _shorten_warm_up(self) -> None:
        """Shorten the warm-up by the number of labels of the decider that has the fewest."""
        settings, ledger = self._settings, self._ledger
        least = int(min(ledger.view("n_observed")[: len(settings.deciders)]))
        ledger.set("warm_up", min(ledger.get("warm_up"), max(settings.warm_up_steps - least, ledger.next_id)))
        settings.strategy.warm_up_changed(ledger.dual, ledger.get("warm_up"))
        self._representation.refresh_window_if_due()

    def _count_costs(self, seen: Floats) -> None:
        if len(seen):
            largest = self._ledger.view("largest_cost")
            largest[:] = np.maximum(largest, seen.max(axis=0))
            self._ledger.view("cost_sum")[:] += seen.sum(axis=0)
            self._ledger.view("cost_n")[:] += len(seen)
