"""Warm start: learning from labelled tasks instead of a random warm-up."""

from typing import Any

import numpy as np

from deferkit.errors import expected
from deferkit.learn import inputs
from deferkit.learn.components import Components
from deferkit.learn.decisions import Decisions
from deferkit.learn.encode import FREEZE_AFTER
from deferkit.learn.outcomes import Floats


class WarmStart:
    """Learns from labelled tasks that the learner did not decide."""

    def __init__(self, components: Components, decisions: Decisions) -> None:
        self._settings = components.settings
        self._ledger = components.ledger
        self._contexts = components.contexts
        self._outcomes = components.outcomes
        self._representation = components.representation
        self._decisions = decisions

    def learn(self, contexts: Any, rewards: Any, expert: str | None, cost: Any) -> None:
        """Learn labelled tasks and shorten the warm-up; `Deferrer.warm_start` describes the arguments."""
        settings, ledger, encoder = self._settings, self._ledger, self._contexts.encoder
        name = settings.experts[0] if expert is None else expert
        expert_number = inputs.index_of(name, settings.experts, "expert") + 1
        rows = self._contexts.rows(contexts)
        matrix = self._contexts.matrix(contexts) if rows is None else self._contexts.encode(rows)
        values, costs = self._labels(rewards, cost, len(matrix))
        if encoder is not None and ledger.get("unsettled") and len(matrix) < FREEZE_AFTER:
            raise expected("contexts", "warm start", f"at least {FREEZE_AFTER} rows, for the scales", len(matrix))
        if rows and encoder is not None and ledger.get("unsettled"):
            self._decisions.freeze_encoder_on(encoder, rows)
            matrix = self._contexts.encode(rows)
        cost_expert = np.where(np.isnan(costs).any(axis=1), 0, expert_number)
        self._outcomes.switch_link_for(values)
        ledger.core.fill_rank_tables(matrix)
        if self._representation is None:
            self._outcomes.learn(matrix, cost_expert, values, costs)
        else:
            self._representation.learn_labelled(matrix, values, costs, cost_expert)
        self._shorten_warm_up()
        self._count_costs(costs[cost_expert > 0])

    def _labels(self, rewards: Any, cost: Any, n: int) -> tuple[Floats, Floats]:
        """Return checked rewards and costs, with NaN for unknown ones."""
        settings = self._settings
        values = inputs.as_rewards(rewards, settings.deciders, n, settings.reward_bounds, missing=True)
        if cost is None:
            return values, np.full((n, len(settings.budget)), np.nan)
        costs = np.ascontiguousarray(inputs.as_costs(cost, ("cost",), settings.resources, n)[:, 0])
        self._outcomes.check_costs(costs, missing=True)
        return values, costs

    def _shorten_warm_up(self) -> None:
        """Shorten the warm-up by the number of labels of the decider that has the fewest."""
        settings, ledger = self._settings, self._ledger
        least = int(min(ledger.view("n_observed")[: len(settings.deciders)]))
        ledger.set("warm_up", min(ledger.get("warm_up"), max(settings.warm_up_steps - least, ledger.next_id)))
        settings.strategy.warm_up_changed(ledger.dual, ledger.get("warm_up"))
        if self._representation is not None:
            self._representation.refresh_window_if_due()

    def _count_costs(self, seen: Floats) -> None:
        if len(seen):
            largest = self._ledger.view("largest_cost")
            largest[:] = np.maximum(largest, seen.max(axis=0))
            self._ledger.view("cost_sum")[:] += seen.sum(axis=0)
            self._ledger.view("cost_n")[:] += len(seen)
