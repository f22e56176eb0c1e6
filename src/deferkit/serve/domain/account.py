"""The account of a resource: total, reserved, posted and suspense, in micro-units.

reserved + posted ≤ total, always. A cost that does not fit stands in suspense; as soon as budget comes free, suspense
is posted from it, before anything else can be reserved.
"""

from typing import NamedTuple

from deferkit.errors import BudgetExhausted
from deferkit.serve.domain.money import LARGEST_SUM, MICRO


class Account(NamedTuple):
    """The account of one resource.

    >>> account = Account(10).reserve(4).settle(4, 3)
    >>> account, account.free
    (Account(total=10, reserved=0, posted=3, suspense=0), 7)
    >>> account.reserve(5).settle(5, 9)
    Account(total=10, reserved=0, posted=10, suspense=2)
    """

    total: int | None  # None: without end
    reserved: int = 0
    posted: int = 0
    suspense: int = 0  # booked, but beyond the total

    @property
    def free(self) -> int | None:
        """The amount that may still be reserved; None without a total."""
        return None if self.total is None else self.total - self.reserved - self.posted

    def fits(self, amount: int) -> bool:
        """Whether this amount may be reserved: never while a cost is in suspense."""
        return self.total is None or (self.suspense == 0 and amount <= self.total - self.reserved - self.posted)

    def has_room(self, amount: int) -> bool:
        """Whether the sums stay within `LARGEST_SUM` (64 bits) if this amount is added.

        `reserve` and `settle` do not check it: they apply log records, which are facts.
        """
        return self.reserved + self.posted + self.suspense + amount <= LARGEST_SUM * MICRO

    def reserve(self, amount: int) -> "Account":
        """Hold an amount for a decision."""
        if not self.fits(amount):
            raise BudgetExhausted(f"{amount} micro-units do not fit into the {self.free} that are free.")
        return Account(self.total, self.reserved + amount, self.posted, self.suspense)

    def settle(self, reserved: int, cost: int) -> "Account":
        """Release a reservation and post a cost; the part that does not fit the total goes to suspense."""
        return Account(self.total, self.reserved - reserved, self.posted, self.suspense + cost).swept()

    def reverse(self, was: int, now: int) -> "Account":
        """Replace a posted cost by another one."""
        owed = self.suspense + now - was
        return Account(self.total, self.reserved, self.posted + min(owed, 0), max(owed, 0)).swept()

    def changed(self, total: int | None) -> "Account":
        """Top up or cut the total; not below what is reserved and posted."""
        if total is not None and total < self.reserved + self.posted:
            raise BudgetExhausted(
                f"The budget cannot be cut to {total / 1e6:g}:"
                f" {(self.reserved + self.posted) / 1e6:g} is reserved or posted."
            )
        return Account(total, self.reserved, self.posted, self.suspense).swept()

    def renewed(self, granted: int, lapsed: int) -> "Account":
        """Begin a period: some of what is free lapses, an allowance is granted, and suspense is posted from it."""
        if self.total is None or not 0 <= lapsed <= (self.free or 0):
            raise BudgetExhausted(f"{lapsed} micro-units cannot lapse of the {self.free} that are free.")
        return Account(self.total - lapsed + granted, self.reserved, self.posted, self.suspense).swept()

    def swept(self) -> "Account":
        """Post the amount in suspense, as far as the total allows."""
        if not self.suspense:
            return self
        room = self.suspense if self.total is None else min(self.suspense, self.total - self.reserved - self.posted)
        return Account(self.total, self.reserved, self.posted + room, self.suspense - room)
