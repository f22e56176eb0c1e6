"""Accounts in whole micro-units."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import msgspec

from deferkit.errors import BudgetExhausted, InvalidArgument
from deferkit.types import Amount, is_number

MICRO = 1_000_000
MAX_AMOUNT = 4_000_000_000  # from 2**32 on, some micro-units do not come back from the double next to them
MAX_SUM = 9_000_000_000_000  # in micro-units it fits into 64 bits

Micros: TypeAlias = dict[str, int]
"""Micro-units by resource."""


def to_micro(name: str, value: object) -> int:
    """Return an amount in micro-units; raise if it is not one: negative, not finite, too large or too fine.

    >>> to_micro("cost", 0.4)
    400000
    >>> to_micro("cost", 0.1234567)
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: The cost has at most 6 decimals. Got 0.1234567: round it first.
    """
    if not is_number(value) or not 0 <= value <= MAX_AMOUNT:  # type: ignore[operator]
        raise InvalidArgument(f"The {name} is a number from 0 to {MAX_AMOUNT:,}. Got {value!r}.")
    micro = round(value * MICRO)  # type: ignore[operator]
    if micro / MICRO != value:
        raise InvalidArgument(f"The {name} has at most 6 decimals. Got {value!r}: round it first.")
    return micro


def to_micros(name: str, amount: Amount, resources: Sequence[str]) -> Micros:
    """Return an amount, a number or one for each resource, in micro-units.

    >>> to_micros("cost", 0.5, ["minutes"]), to_micros("cost", {"minutes": 2, "euros": 0.1}, ["minutes", "euros"])
    ({'minutes': 500000}, {'minutes': 2000000, 'euros': 100000})
    """
    if not isinstance(amount, Mapping):
        if len(resources) > 1:
            raise InvalidArgument(f"The {name} is given for each of {', '.join(resources)}. Got {amount!r}.")
        return {resources[0]: to_micro(name, amount)}
    if set(amount) != set(resources):
        raise InvalidArgument(f"The {name} is given for {', '.join(resources)}. Got it for {', '.join(amount)}.")
    return {resource: to_micro(f"{name} in {resource}", amount[resource]) for resource in resources}


def from_micros(micros: Mapping[str, int]) -> Amount:
    """Return micro-units as an amount: a number when there is one resource.

    >>> from_micros({"minutes": 500_000}), from_micros({"minutes": 2_000_000, "euros": 100_000})
    (0.5, {'minutes': 2.0, 'euros': 0.1})
    """
    if len(micros) == 1:
        return next(iter(micros.values())) / MICRO
    return {resource: micro / MICRO for resource, micro in micros.items()}


def in_reply(micro: int) -> float:
    """Return micro-units as a JSON number: exact, even where the nearest double is another number.

    >>> msgspec.json.encode([in_reply(500_000), in_reply(9_007_199_254_740_993)])
    b'[0.5,9007199254.740993]'
    """
    if micro <= MAX_AMOUNT * MICRO:
        return micro / MICRO
    return cast("float", msgspec.Raw(f"{micro // MICRO}.{micro % MICRO:06}".encode()))


def all_in_reply(micros: Mapping[str, int]) -> float | dict[str, float]:
    """Return micro-units as `from_micros` does, for JSON.

    >>> msgspec.json.encode(all_in_reply({"minutes": 500_000}))
    b'0.5'
    """
    amounts = {resource: in_reply(micro) for resource, micro in micros.items()}
    return next(iter(amounts.values())) if len(amounts) == 1 else amounts


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
        """Whether the sums stay within `MAX_SUM` (64 bits) if this amount is added.

        `reserve` and `settle` do not check it: they apply log records, which are facts.
        """
        return self.reserved + self.posted + self.suspense + amount <= MAX_SUM * MICRO

    def reserve(self, amount: int) -> "Account":
        """Hold an amount for a decision."""
        if not self.fits(amount):
            raise BudgetExhausted(f"{amount} micro-units do not fit into the {self.free} that are free.")
        return Account(self.total, self.reserved + amount, self.posted, self.suspense)

    def settle(self, reserved: int, cost: int) -> "Account":
        """Release a reservation and post a cost; the part that does not fit the total goes to suspense."""
        return Account(self.total, self.reserved - reserved, self.posted, self.suspense + cost).swept()

    def reverse(self, was: int, now: int) -> "Account":
        """Replace a posted cost."""
        owed = self.suspense + now - was
        return Account(self.total, self.reserved, self.posted + min(owed, 0), max(owed, 0)).swept()

    def with_total(self, total: int | None) -> "Account":
        """Top up or cut the total, not below the reserved and posted amounts."""
        if total is not None and total < self.reserved + self.posted:
            raise BudgetExhausted(
                f"The budget cannot be cut to {total / 1e6:g}:"
                f" {(self.reserved + self.posted) / 1e6:g} is reserved or posted."
            )
        return Account(total, self.reserved, self.posted, self.suspense).swept()

    def begin_period(self, granted: int, lapsed: int) -> "Account":
        """Begin a period: a part of the free amount lapses, an allowance is granted, and suspense is posted from it."""
        if self.total is None or not 0 <= lapsed <= (self.free or 0):
            raise BudgetExhausted(f"{lapsed} micro-units cannot lapse of the {self.free} that are free.")
        return Account(self.total - lapsed + granted, self.reserved, self.posted, self.suspense).swept()

    def pass_periods(self, granted: int, lapsed: int) -> "Account":
        """Begin and end periods without a call, given the sums of what they were granted and of what lapsed."""
        if self.total is None or lapsed < 0 or granted < 0 or self.free + granted - lapsed < 0:  # type: ignore[operator]
            raise BudgetExhausted(f"{lapsed} micro-units cannot lapse of the {self.free} that are free and {granted}.")
        return Account(self.total - lapsed + granted, self.reserved, self.posted, self.suspense).swept()

    def swept(self) -> "Account":
        """Post the amount in suspense, as far as the total allows."""
        if not self.suspense:
            return self
        room = self.suspense if self.total is None else min(self.suspense, self.total - self.reserved - self.posted)
        return Account(self.total, self.reserved, self.posted + room, self.suspense - room)
