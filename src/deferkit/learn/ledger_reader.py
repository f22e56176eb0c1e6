"""Reports of a ledger for users: summary, scores, coefficients, drifts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.ledger import OPEN, Ledger
from deferkit.learn.spending import SpendingReport
from deferkit.types import MODEL, Amount, Coefficients, Drifted, Period, Scores, Summary

Floats = NDArray[np.float64]

TINY_WEIGHT = 1e-300  # a sum of weights that is not divided by


class LedgerReader:
    """Reads a ledger, with the names of experts and resources.

    Args:
        experts: The names of the experts.
        resources: The names of the resources.
        n_features: The length of a context vector, without the columns of trees.
        ledger: The ledger to read.
    """

    def __init__(self, experts: Sequence[str], resources: Sequence[str], n_features: int, ledger: Ledger) -> None:
        self.experts = tuple(experts)
        self.deciders = (MODEL, *experts)
        self.resources = tuple(resources)
        self.n_features = n_features
        self.ledger = ledger
        self.spending = SpendingReport(self.experts, self.resources, self.targets, ledger)

    @property
    def targets(self) -> list[str]:
        """The names of all targets: the rewards of the deciders, then the costs of the experts."""
        each = [""] if len(self.resources) == 1 else [f" in {name}" for name in self.resources]
        return [*self.deciders, *(f"cost of {expert}{suffix}" for expert in self.experts for suffix in each)]

    def amount(self, numbers: Sequence[float]) -> Amount:
        """Return numbers by resource as an amount."""
        return numbers[0] if len(self.resources) == 1 else dict(zip(self.resources, numbers, strict=True))

    def scores(self, matrix: Floats) -> Scores:
        """Return the scores of contexts, given as views [n, views · width]."""
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
        """Return the coefficients of each target, averaged over the members; the inverse is that of the first one.

        Members that read ranks are left out, since their coefficients are of something else.
        """
        weights, theta = self.ledger.view("member_weight"), self._by_member(self.ledger.view("theta"))
        inverse, views = self.ledger.view("inverse"), self.ledger.view("view")
        if self.ledger.get("n_ranked"):
            given = self.ledger.get("n_given")
            reads_values = self._by_member(views)[:, 0] < self.ledger.get("n_views") - 1
            if reads_values.any():
                weights, theta = weights[:, reads_values], theta[reads_values]
            weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY_WEIGHT)
            theta, inverse = theta[..., :given], inverse[:, :given, :given]
        found = {}
        for target, name in enumerate(self.targets):
            width = inverse[self.ledger.core.design_of(target)].copy()
            if self.ledger.get("n_lasting") > views[target] + 1:  # the first member does not read the columns of trees
                width[self.n_features :] = 0.0
                width[:, self.n_features :] = 0.0
            found[name] = Coefficients(np.tensordot(weights[target], theta[:, target], axes=1), width)
        return found

    def _by_member(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array [member · target, …] as [member, target, …]."""
        return array.reshape(-1, len(self.targets), *array.shape[1:])

    def samples_in_use(self) -> dict[str, float]:
        """Return the effective number of samples of each target: fewer than observed if its members forget."""
        samples = self._by_member(self.ledger.view("member_samples"))
        used = (self.ledger.view("member_weight") * samples.T).sum(axis=1)
        return dict(zip(self.targets, used.tolist(), strict=True))

    def representation_shares(self) -> dict[str, dict[str, float]]:
        """Return the weight of each view of the context in the estimate of each target."""
        views, weights = self._by_member(self.ledger.view("view"))[:, 0], self.ledger.view("member_weight")
        ranks = ("ranks",) if self.ledger.get("n_ranked") else ()  # the last view
        given = int(views.max()) + 1 - len(ranks)
        names = (*(("linear", "stack", "trees") if given == 3 else ("linear", "trees")[:given]), *ranks)
        return {
            target: {name: float(weights[i, views == view].sum()) for view, name in enumerate(names)}
            for i, target in enumerate(self.targets)
        }

    def drifts(self) -> tuple[Drifted, ...]:
        """Return the latest drift of each target that has drifted, in the order of detection."""
        found = []
        for i, target in enumerate(self.targets):
            count, at, strength, since = (
                self.ledger.view(name).item(i) for name in ("n_drifts", "drift_at", "drift_strength", "drift_since")
            )
            if count:
                tested = (since, *self._change_of(i)) if self.ledger.get("drift_test") else ()
                found.append(Drifted(target, at, strength, count, *tested))
        return tuple(sorted(found, key=lambda drift: drift.decision))

    def _change_of(self, target: int) -> tuple[float | None, float | None, float | None]:
        """Return the mean response before and after the last drift of a target, and the error of their difference."""
        means, variance = [], 0.0
        for n, total, squares in self.ledger.view("drift_sums")[target].reshape(2, 3).tolist():
            if n < 2:
                return None, None, None
            means.append(total / n)
            variance += max(0.0, squares / n - means[-1] ** 2) / (n - 1)
        return means[0], means[1], math.sqrt(variance)

    def periods(self) -> dict[str, Period]:
        """Return the current period of each resource that has begun one."""
        ledger, found = self.ledger, {}
        for r, name in enumerate(self.resources):
            start, end, total, spent, before = (
                ledger.view(each).reshape(len(self.resources), -1).item(r, 0)
                for each in ("period_start", "period_end", "total", "spent", "spent_before")
            )
            if not math.isnan(start):
                ahead, _ = ledger.core.outlook(r, ledger.view("clock").item())
                found[name] = Period(start, end, total - before, spent - before, ahead)
        return found

    def summary(self) -> Summary:
        """Return counts, budget, price, noise and estimates, and a remark if experts are asked less than planned."""
        recent = self.spending.recent()
        estimates = self.spending.estimates(recent)
        return self.figures()._replace(estimates=estimates, remark=self.spending.remark(recent, estimates))

    def figures(self) -> Summary:
        """Return the summary without estimates and remark, which take most of its time."""
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
            left=self.amount(ledger.budget_left().tolist()),
            overrun=overrun,
            price=self.amount(ledger.price.tolist()),
            pending=int((ledger.status == OPEN).sum()),
            expired=ledger.get("n_expired"),
            forced=ledger.get("n_forced"),
            without_budget=ledger.get("n_no_budget"),
            noise=dict(zip(self.targets, noise, strict=True)),
            samples=dict(zip(self.targets, ledger.view("n_observed").tolist(), strict=True)),
            samples_in_use=self.samples_in_use(),
            drifts=int(ledger.view("n_drifts").sum()),
            history_bytes=kept + ledger.samples.nbytes,
            stopped=ledger.get("n_stopped"),
            backwards=ledger.get("n_backwards"),
            periods=self.periods(),
        )
