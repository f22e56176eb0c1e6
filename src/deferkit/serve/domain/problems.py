"""What a caller is told when something cannot be done: a status, a short code and a sentence."""

from deferkit.errors import DeferkitError


class Problem(DeferkitError):
    """Something that a caller did, or must wait for.

    >>> problem = Problem(409, "conflict", "Task a was sent with another body.")
    >>> problem.status, str(problem)
    (409, 'Task a was sent with another body.')
    """

    def __init__(self, status: int, code: str, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.retry_after = retry_after


def unknown(what: str, name: str) -> Problem:
    """Return the problem that something is not there."""
    return Problem(404, "unknown", f"There is no {what} {name!r}.")


def conflict(detail: str) -> Problem:
    """Return the problem that something contradicts what is known."""
    return Problem(409, "conflict", detail)


def exhausted(detail: str) -> Problem:
    """Return the problem that something does not fit into the budget."""
    return Problem(409, "exhausted", detail)


def invalid(detail: str) -> Problem:
    """Return the problem that a value is not possible."""
    return Problem(422, "invalid", detail)


def unavailable(detail: str, *, retry_after: float = 1.0) -> Problem:
    """Return the problem that a call must be repeated later; nothing of it was done."""
    return Problem(503, "unavailable", detail, retry_after=retry_after)


class TooManyPolicies(Problem):
    """A tenant has as many policies as it may have."""

    def __init__(self, most: int) -> None:
        super().__init__(409, "too_many", f"There are {most} policies, and no more may be made.")


class Damaged(Problem):
    """The log of a policy is not what was written: it is not served until somebody has looked at it."""

    def __init__(self, how: str) -> None:
        super().__init__(500, "damaged", f"The policy is damaged and not served. {how}")


class StoreFailed(DeferkitError):
    """The store could not write; nothing was changed, and it may work again later."""


class Unconfirmed(StoreFailed):
    """The store was lost during a commit: that was done or not, and is found out before anything else is written."""


class StoreBroken(DeferkitError):
    """The store could not make sure that what it wrote is on disk: the process must stop and start anew."""


class Fenced(DeferkitError):
    """Another process owns the policy now."""

    def __init__(self, policy: int) -> None:
        super().__init__(f"Another process owns policy {policy} now.")
        self.policy = policy
