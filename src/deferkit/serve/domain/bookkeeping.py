"""Bookkeeping: how a log record changes the accounts of a policy."""

from collections.abc import Mapping

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.log_records import AnyRecord
from deferkit.serve.domain.money import Micros, to_micro
from deferkit.serve.domain.policy_spec import BudgetSpec, PolicySpec


def opened(spec: PolicySpec) -> dict[str, Account]:
    """Return the opening accounts of a policy. Budgets that renew start empty: each period is granted its allowance."""
    return {
        name: Account(None if each.total is None else to_micro("total", each.total) if is_at_once(each) else 0)
        for name, each in spec.budget.items()
    }


def is_at_once(budget: BudgetSpec) -> bool:
    """Whether a budget has all of its total from the start."""
    return budget.every is msgspec.UNSET


def booked(accounts: Mapping[str, Account], record: AnyRecord) -> dict[str, Account]:  # noqa: PLR0911  one for each kind
    """Return the accounts after a record.

    Args:
        accounts: Those before it, by resource.
        record: What happened.

    >>> from deferkit.serve.domain.log_records import EffortRecord
    >>> effort = EffortRecord(task="t", id=0, seat=0, epoch=1, reviewer="ann", cost={"minutes": 3})
    >>> booked({"minutes": Account(10)}, effort)["minutes"].posted
    3
    """
    match record:
        case log_records.DecidedRecord(held=held) if held is not None:
            return {name: each.reserve(held[name]) if name in held else each for name, each in accounts.items()}
        case log_records.ExtendedRecord(amount=more):
            return {name: each.reserve(more[name]) if name in more else each for name, each in accounts.items()}
        case log_records.ObservedRecord(cost=cost) if cost is not None:
            return settled(accounts, record.released or {}, cost)
        case log_records.ExpiredRecord():
            return settled(accounts, record.released, {})
        case log_records.EffortRecord():
            return settled(accounts, {}, record.cost)
        case log_records.CorrectedRecord(cost=cost, was=was) if cost is not None and was is not None:
            return {
                name: each.reverse(was[name], cost[name]) if name in cost else each for name, each in accounts.items()
            }
        case log_records.BudgetChangedRecord(totals=totals):
            return {name: each.changed(totals[name]) if name in totals else each for name, each in accounts.items()}
        case log_records.RenewedRecord(resource=name):
            return {**accounts, name: accounts[name].renewed(record.granted, record.lapsed)}
        case _:
            return dict(accounts)


def settled(accounts: Mapping[str, Account], released: Micros, cost: Micros) -> dict[str, Account]:
    """Return the accounts after a reservation was released and a cost posted."""
    return {name: each.settle(released.get(name, 0), cost.get(name, 0)) for name, each in accounts.items()}
