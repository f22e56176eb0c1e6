"""Everything that deferkit raises on purpose, under one base class."""


class DeferkitError(Exception):
    """The base of every error that deferkit raises on purpose.

    >>> from deferkit import Budget, DeferkitError
    >>> try:
    ...     Budget(-1, horizon=10)
    ... except DeferkitError as error:
    ...     print(error)
    The 'total' of a Budget must be a number of at least 0. Got -1 instead.
    """


class InvalidArgument(DeferkitError, ValueError):
    """An argument is of the wrong kind, shape or range; nothing was changed."""


class UnknownDecision(DeferkitError, KeyError):
    """No decision has this id."""

    def __str__(self) -> str:
        # KeyError would show the repr of the sentence, quotes and all.
        return str(self.args[0])


class AlreadySettled(DeferkitError):
    """The decision is settled and so old that its outcome is no longer remembered."""


class ConflictingObservation(DeferkitError):
    """An observation contradicts one that was made before; the first one stands."""


class BudgetExhausted(DeferkitError):
    """A forced route or a cut of the budget does not fit into what is free."""


class EventOutOfOrder(DeferkitError):
    """An event was applied to a learner that is not in the state the event was made for."""


class UnreadableState(DeferkitError):
    """A file is not a state that this version can load."""


class AssumptionWarning(UserWarning):
    """A guarantee of the paper does not cover this setting."""


class HorizonWarning(UserWarning):
    """The horizon of the budget is over; what is left is spent at the last price."""


def expected(name: str, owner: str, what: str, got: object) -> InvalidArgument:
    """Return the one error sentence that is used for every bad argument.

    >>> print(expected("ridge", "Deferrer", "a number above 0", -1))
    The 'ridge' of a Deferrer must be a number above 0. Got -1 instead.
    """
    return InvalidArgument(f"The '{name}' of a {owner} must be {what}. Got {got!r} instead.")
