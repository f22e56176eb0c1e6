"""From the arrays of the compiled core to what a user reads."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.ledger import OPEN, Ledger
from deferkit.types import MODEL, Amount, Coefficients, Scores, Summary

Floats = NDArray[np.float64]


class Records:
    """Reads a ledger for given names of experts and resources."""

    def __init__(self, experts: Sequence[str], resources: Sequence[str], ledger: Ledger) -> None:
        self.experts = tuple(experts)
        self.deciders = (MODEL, *experts)
        self.resources = tuple(resources)
        self.ledger = ledger

    @property
    def targets(self) -> list[str]:
        """The names of all that is estimated: the rewards of the deciders, then the costs of the experts."""
        each = [""] if len(self.resources) == 1 else [f" in {name}" for name in self.resources]
        return [*self.deciders, *(f"cost of {expert}{suffix}" for expert in self.experts for suffix in each)]

    def amount(self, numbers: Sequence[float]) -> Amount:
        """Return a number for each resource as an amount."""
        return numbers[0] if len(self.resources) == 1 else dict(zip(self.resources, numbers, strict=True))

    def scores(self, matrix: Floats) -> Scores:
        """Return the scores of a set of contexts, as the compiled core reads them."""
        n, k, r = len(matrix), len(self.experts), len(self.resources)
        routes = np.zeros(n, dtype=np.int64)
        estimates, widths = np.zeros((n, len(self.targets))), np.zeros((n, len(self.targets)))
        price = np.full(r, np.nan)
        self.ledger.core.score_many(matrix, routes, estimates, widths, price)
        costs, cost_widths = (each[:, 1 + k :].reshape(-1, k, r) for each in (estimates, widths))
        return Scores(
            routes=np.array(self.deciders)[routes],
            estimates={name: estimates[:, i] for i, name in enumerate(self.deciders)},
            widths={name: widths[:, i] for i, name in enumerate(self.deciders)},
            costs={name: costs[:, i] for i, name in enumerate(self.experts)},
            cost_widths={name: cost_widths[:, i] for i, name in enumerate(self.experts)},
            price=self.amount(price.tolist()),
        )

    def coefficients(self) -> dict[str, Coefficients]:
        """Return what is believed of each reward and cost."""
        theta, inverse = self.ledger.view("theta"), self.ledger.view("inverse")
        return {
            name: Coefficients(theta[i].copy(), inverse[self.ledger.core.design_of(i)].copy())
            for i, name in enumerate(self.targets)
        }

    def summary(self) -> Summary:
        """Return where a learner stands."""
        ledger = self.ledger
        routed = ledger.view("n_routed").tolist()
        made = ledger.next_id
        noise = np.sqrt(ledger.view("squared_error") / np.maximum(ledger.view("n_observed"), 1)).tolist()
        kept = sum(ledger.view(name).nbytes for name in ("context", "held", "reward", "cost"))
        totals, spent, reserved, overrun = (
            self.amount(ledger.view(name).tolist()) for name in ("total", "spent", "reserved", "overrun")
        )
        return Summary(
            decisions=made,
            routes=dict(zip(self.deciders, routed, strict=True)),
            deferral_rate=1 - routed[0] / made if made else 0.0,
            total=totals,
            spent=spent,
            reserved=reserved,
            left=self.amount(ledger.left().tolist()),
            overrun=overrun,
            price=self.amount(ledger.price.tolist()),
            pending=int((ledger.status == OPEN).sum()),
            expired=ledger.get("n_expired"),
            forced=ledger.get("n_forced"),
            without_budget=ledger.get("n_no_budget"),
            noise=dict(zip(self.targets, noise, strict=True)),
            history_bytes=kept + ledger.samples.nbytes,
        )
