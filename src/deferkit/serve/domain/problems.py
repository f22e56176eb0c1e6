"""Problem responses (HTTP status, code, sentence) and errors of the store."""

from deferkit.errors import DeferkitError

MEGABYTE = 1_000_000


class Problem(DeferkitError):
    """A problem that is sent to the caller.

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
    """Return a 404."""
    return Problem(404, "unknown", f"There is no {what} {name!r}.")


def conflict(detail: str) -> Problem:
    """Return a 409: the call contradicts earlier ones."""
    return Problem(409, "conflict", detail)


def budget_conflict(detail: str) -> Problem:
    """Return a 409: the budget does not allow it."""
    return Problem(409, "exhausted", detail)


def invalid(detail: str) -> Problem:
    """Return a 422: an invalid value."""
    return Problem(422, "invalid", detail)


def unavailable(detail: str, *, retry_after: float = 1.0) -> Problem:
    """Return a 503: nothing was done, and the call may be retried."""
    return Problem(503, "unavailable", detail, retry_after=retry_after)


class TooManyPolicies(Problem):
    """A tenant has reached its maximum number of policies."""

    def __init__(self, most: int) -> None:
        super().__init__(409, "too_many", f"There are {most} policies, which is the maximum.")


class TooMuchMemory(Problem):
    """The learner of a new policy needs more memory than its tenant has left.

    Args:
        needed: Bytes that it needs.
        taken: Bytes that the tenant's policies take.
        most: Bytes that they may take together.
    """

    def __init__(self, needed: int, taken: int, most: int) -> None:
        left = max(0, most - taken)
        super().__init__(
            409,
            "too_much_memory",
            f"The policy needs {needed / MEGABYTE:,.1f} MB of memory, and {left / MEGABYTE:,.1f} MB are left of the"
            f" {most / MEGABYTE:,.0f} MB that all policies may take together (the setting tenant_memory). Take fewer"
            " features, experts or resources, a shorter memory, representation 'linear' or forget 'never'; or delete a"
            " policy that is not needed.",
        )


class TooMuchData(Problem):
    """What a tenant keeps on the disk has reached its quota.

    Args:
        taken: Bytes that the tenant's policies take in the store.
        most: Bytes that they may take.
    """

    def __init__(self, taken: int, most: int) -> None:
        super().__init__(
            409,
            "too_much_data",
            f"The policies take {taken / MEGABYTE:,.1f} MB in the store, and may take {most / MEGABYTE:,.0f} MB (the"
            " setting tenant_disk). Delete a policy that is not needed, or erase payloads. Tasks that were decided can"
            " still be reviewed, and their outcomes reported.",
        )


class Damaged(Problem):
    """The log of a policy is damaged. The policy is not served until an operator intervenes."""

    def __init__(self, how: str) -> None:
        super().__init__(500, "damaged", f"The policy is damaged and not served. {how}")


class StoreFailed(DeferkitError):
    """The store could not write; nothing was changed, and it may work again later."""


class Unconfirmed(StoreFailed):
    """The connection was lost during a commit, whose outcome is unknown until the log is read again."""


class StoreBroken(DeferkitError):
    """The disk did not confirm a write (fsync failed): the process must stop and restart."""


class Fenced(DeferkitError):
    """Another process owns the policy now."""

    def __init__(self, policy: int) -> None:
        super().__init__(f"Another process owns policy {policy} now.")
        self.policy = policy
