"""Budgets, and changes of what they are to last for, as the service takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from deferkit.client.wire import amount_of, given
from deferkit.errors import expected
from deferkit.periods import as_seconds
from deferkit.types import Amount, Budget

OF_A_PERIOD = ("until", "every", "zone", "start", "hold", "limit")


def budget_of(budget: Budget) -> dict[str, Any]:
    """Return a budget as the service takes it.

    >>> budget_of(Budget(40, every="7d", carry=float("inf"), max_cost=2))
    {'total': 40, 'max_cost': 2, 'every': '7d', 'carry': None}
    """
    body = given(
        total=None if budget.total == float("inf") else budget.total,
        horizon=budget.horizon,
        max_cost=budget.max_cost,
        **{name: getattr(budget, name) for name in OF_A_PERIOD},
    )
    if budget.carry:
        body["carry"] = None if budget.carry == float("inf") else budget.carry
    return body


def plans_of(resources: Sequence[str], *, horizon: Any, until: Any, allowance: Amount | None) -> dict[str, Any]:
    """Return what budgets are to last for, by resource.

    >>> plans_of(["minutes"], horizon=None, until=1.9e9, allowance=None)
    {'minutes': {'until': 1900000000.0}}
    """
    plans: dict[str, dict[str, Any]] = {}
    ends = {name: as_seconds("until", "budget", each) for name, each in by_resource(resources, until).items()}
    for field, values in (
        ("horizon", by_resource(resources, horizon)),
        ("until", ends),
        ("allowance", by_resource(resources, amount_of("allowance", allowance))),
    ):
        for name, value in values.items():
            plans.setdefault(name, {})[field] = value
    return plans


def by_resource(resources: Sequence[str], value: Any) -> dict[str, Any]:
    """Return values by resource; a single one is that of the only resource."""
    if value is None or isinstance(value, Mapping):
        return dict(value or {})
    if len(resources) > 1:
        raise expected("change", "budget", f"given by resource ({', '.join(resources)})", value)
    return {resources[0]: value}
