"""From the numbers that the compiled steps write down to what a user reads."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.account import OPEN
from deferkit.learn.arrays import N_BUDGET, N_EXPIRED, N_FORCED
from deferkit.learn.glm import design_of
from deferkit.learn.ledger import Ledger
from deferkit.learn.loop import N_RECORD, PROPENSITY, REASON, ROUTE
from deferkit.types import REASONS, Amount, Coefficients, Decision, Scores, Summary

Floats = NDArray[np.float64]


class Records:
    """Reads records for given names of experts and resources."""

    def __init__(self, experts: Sequence[str], resources: Sequence[str]) -> None:
        self.experts = tuple(experts)
        self.deciders = ("model", *experts)
        self.resources = tuple(resources)
        self.single = len(self.resources) == 1
        self.two_armed = self.single and len(self.experts) == 1
        n, r, k = 1 + len(experts) * (1 + len(resources)), len(resources), len(experts)
        # places in a record
        self.price = N_RECORD
        self.left = N_RECORD + r
        self.held = N_RECORD + 2 * r
        self.cost = N_RECORD + 3 * r
        self.estimates = N_RECORD + 4 * r
        self.widths = self.estimates + n
        self.costs = self.estimates + 1 + k
        self.cost_widths = self.widths + 1 + k

    @property
    def targets(self) -> list[str]:
        """The names of all that is estimated: the rewards of the deciders, then the costs of the experts."""
        each = [""] if self.single else [f" in {name}" for name in self.resources]
        return [*self.deciders, *(f"cost of {expert}{suffix}" for expert in self.experts for suffix in each)]

    def amount(self, numbers: Sequence[float]) -> Amount:
        """Return a number for each resource as an amount."""
        return numbers[0] if self.single else dict(zip(self.resources, numbers, strict=True))

    def _costs(self, row: list[float], start: int) -> dict[str, Amount]:
        if self.single:
            return dict(zip(self.experts, row[start:], strict=False))
        r = len(self.resources)
        return {name: self.amount(row[start + k * r : start + (k + 1) * r]) for k, name in enumerate(self.experts)}

    def decision(self, number: int, row: list[float]) -> Decision:
        """Return the decision with this number and record."""
        if self.two_armed:
            return self._two_armed_decision(number, row)
        r = len(self.resources)
        price, left, held, cost = (
            self.amount(row[at : at + r]) for at in (self.price, self.left, self.held, self.cost)
        )
        return Decision(
            number,
            self.deciders[int(row[ROUTE])],
            REASONS[int(row[REASON])],
            row[PROPENSITY],
            price,
            left,
            held,
            cost,
            dict(zip(self.deciders, row[self.estimates : self.costs], strict=True)),
            dict(zip(self.deciders, row[self.widths : self.cost_widths], strict=True)),
            self._costs(row[: self.widths], self.costs),
            self._costs(row, self.cost_widths),
        )

    def _two_armed_decision(self, number: int, row: list[float]) -> Decision:
        """Do the same for one expert and one resource, at a third of the time: most of `decide` is spent here."""
        expert = self.experts[0]
        (route, reason, propensity, price, left, held, cost, model, human, human_cost, *widths) = row
        return tuple.__new__(
            Decision,
            (
                number,
                expert if route else "model",
                REASONS[int(reason)],
                propensity,
                price,
                left,
                held,
                cost,
                {"model": model, expert: human},
                {"model": widths[0], expert: widths[1]},
                {expert: human_cost},
                {expert: widths[2]},
            ),
        )

    def scores(self, rows: Floats) -> Scores:
        """Return the scores of a set of contexts."""
        prices = rows[0, self.price : self.left].tolist() if len(rows) else [math.nan] * len(self.resources)
        k, r = len(self.experts), len(self.resources)
        costs = rows[:, self.costs : self.widths].reshape(-1, k, r)
        cost_widths = rows[:, self.cost_widths :].reshape(-1, k, r)
        return Scores(
            routes=np.array(self.deciders)[rows[:, ROUTE].astype(int)],
            estimates={name: rows[:, self.estimates + i] for i, name in enumerate(self.deciders)},
            widths={name: rows[:, self.widths + i] for i, name in enumerate(self.deciders)},
            costs={name: costs[:, i] for i, name in enumerate(self.experts)},
            cost_widths={name: cost_widths[:, i] for i, name in enumerate(self.experts)},
            price=self.amount(prices),
        )

    def coefficients(self, ledger: Ledger) -> dict[str, Coefficients]:
        """Return what is believed of each reward and cost."""
        theta, inverse = ledger.view("theta"), ledger.view("inverse")
        return {
            name: Coefficients(theta[i].copy(), inverse[design_of(ledger.ints, i)].copy())
            for i, name in enumerate(self.targets)
        }

    def summary(self, ledger: Ledger) -> Summary:
        """Return where a learner stands."""
        routed = ledger.view("n_routed").tolist()
        made = ledger.next_id
        noise = np.sqrt(ledger.view("misfit") / np.maximum(ledger.view("n_observed"), 1)).tolist()
        kept = sum(ledger.view(name).nbytes for name in ("context", "held", "reward", "cost"))
        return Summary(
            decisions=made,
            routes=dict(zip(self.deciders, routed, strict=True)),
            deferral_rate=1 - routed[0] / made if made else 0.0,
            total=self.amount(ledger.view("total").tolist()),
            spent=self.amount(ledger.view("spent").tolist()),
            reserved=self.amount(ledger.view("reserved").tolist()),
            left=self.amount(ledger.left().tolist()),
            overrun=self.amount(ledger.view("overrun").tolist()),
            price=self.amount(ledger.view("price").tolist()),
            pending=int((ledger.status == OPEN).sum()),
            expired=int(ledger.ints[N_EXPIRED]),
            forced=int(ledger.ints[N_FORCED]),
            without_budget=int(ledger.ints[N_BUDGET]),
            noise=dict(zip(self.targets, noise, strict=True)),
            history_bytes=kept + ledger.samples.nbytes,
        )
