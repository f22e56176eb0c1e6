"""An account: reserved + posted ≤ total after everything that can happen to it, and no cost is lost or booked twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from deferkit.errors import BudgetExhausted
from deferkit.serve.domain.accounts import Account

amounts = st.integers(0, 30)


class AccountMachine(RuleBasedStateMachine):
    """Whatever is done to an account, what it owes is the sum of the costs that were booked."""

    reservations: Bundle[Any] = Bundle("reservations")
    costs: Bundle[Any] = Bundle("costs")

    def __init__(self) -> None:
        super().__init__()
        self.account = Account(20)
        self.owned = 0
        self.booked = 0

    @rule(target=reservations, amount=amounts)
    def reserve(self, amount: int) -> int:
        if not self.account.fits(amount):
            with pytest.raises(BudgetExhausted):
                self.account.reserve(amount)
            return 0
        self.account = self.account.reserve(amount)
        self.owned += amount
        return amount

    @rule(target=costs, reserved=consumes(reservations), cost=amounts)
    def settle(self, reserved: int, cost: int) -> int:
        self.account = self.account.settle(reserved, cost)
        self.owned -= reserved
        self.booked += cost
        return cost

    @rule(target=costs, cost=amounts)
    def settle_late(self, cost: int) -> int:
        self.account = self.account.settle(0, cost)
        self.booked += cost
        return cost

    @rule(target=costs, was=consumes(costs), now=amounts)
    def reverse(self, was: int, now: int) -> int:
        self.account = self.account.reverse(was, now)
        self.booked += now - was
        return now

    @rule(total=st.one_of(st.none(), st.integers(0, 100)))
    def change(self, total: int | None) -> None:
        if total is not None and total < self.account.reserved + self.account.posted:
            with pytest.raises(BudgetExhausted, match="cannot be cut"):
                self.account.with_total(total)
        else:
            self.account = self.account.with_total(total)
            assert self.account.total == total

    @invariant()
    def nothing_is_overspent_lost_or_doubled(self) -> None:
        account = self.account
        assert account.reserved == self.owned
        assert account.posted + account.suspense == self.booked
        assert min(account.reserved, account.posted, account.suspense) >= 0
        if account.total is None:
            assert account.suspense == 0
        else:
            assert account.reserved + account.posted <= account.total
            # suspense only while nothing is free, and nothing is promised before it is paid
            assert not account.suspense or account.free == 0
            assert account.fits(0) == (account.suspense == 0)


TestAccount = AccountMachine.TestCase


def test_by_hand() -> None:
    account = Account(10).reserve(4).reserve(5)  # 1 is free
    assert not account.fits(2)
    account = account.settle(4, 9)  # 5 free, 9 owed: 5 posted, 4 in suspense
    assert account == Account(10, reserved=5, posted=5, suspense=4)
    assert not account.fits(0)
    account = account.settle(5, 0)  # a release pays the suspense first
    assert account == Account(10, reserved=0, posted=9, suspense=0)
    assert account.free == 1


def test_a_top_up_pays_what_stands_in_suspense_first() -> None:
    account = Account(1).settle(0, 3)
    assert account == Account(1, 0, 1, 2)
    assert account.with_total(2) == Account(2, 0, 2, 1)
    assert account.with_total(7) == Account(7, 0, 3, 0)
    assert account.with_total(None) == Account(None, 0, 3, 0)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_reversal_leaves_what_the_right_cost_would_have_left(total: int, wrong: int, right: int) -> None:
    assert Account(total).settle(0, wrong).reverse(wrong, right) == Account(total).settle(0, right)


def test_an_account_without_end_takes_everything() -> None:
    account = Account(None).reserve(10**15).settle(0, 10**15)
    assert account == Account(None, 10**15, 10**15, 0)
    assert account.free is None


def test_what_is_refused_says_how_much_is_free() -> None:
    with pytest.raises(BudgetExhausted, match="3 micro-units do not fit into the 2 that are free"):
        Account(2).reserve(3)
    with pytest.raises(BudgetExhausted, match="cannot be cut to 1: 1.5 is reserved or posted"):
        Account(2_000_000, 1_000_000, 500_000).with_total(1_000_000)
