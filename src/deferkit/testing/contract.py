"""A check of a contract, and what it raises."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from deferkit.errors import DeferkitError, SpendingWarning


class ContractViolated(DeferkitError, AssertionError):
    """A plug-in does not keep a promise of its kind; the message says which, and what happened.

    >>> from deferkit.testing import ContractViolated
    >>> raise ContractViolated("budget: 12.1 was spent of 10.")
    Traceback (most recent call last):
    deferkit.testing.contract.ContractViolated: budget: 12.1 was spent of 10.
    """


class ContractCheck(NamedTuple):
    """One promise, and the check of it.

    Attributes:
        name: One word, as in an error.
        promise: What is promised.
        run: Raises ContractViolated if the promise is not kept.
    """

    name: str
    promise: str
    run: Callable[[], None]


def run_checks(checks: Sequence[ContractCheck]) -> list[str]:
    """Run checks; return their names.

    Raises:
        ContractViolated: By the first check that fails; also where the plug-in raised an error of its own.
    """
    for check in checks:
        run_one(check)
    return [check.name for check in checks]


def run_one(check: ContractCheck) -> None:
    """Run a check; an error of the plug-in's own becomes a ContractViolated."""
    try:
        with warnings.catch_warnings():
            # Checks run small budgets on purpose, some of which afford hardly a review.
            warnings.simplefilter("ignore", SpendingWarning)
            check.run()
    except ContractViolated as error:
        raise ContractViolated(f"{check.name}: {error} Promised: {check.promise}.") from error
    except Exception as error:  # whatever a plug-in raises
        reason = f"{type(error).__name__}: {error}"
        raise ContractViolated(f"{check.name}: {reason}. Promised: {check.promise}.") from error


def require(kept: object, sentence: str) -> None:
    """Raise ContractViolated with this sentence unless a promise is kept."""
    if not kept:
        raise ContractViolated(sentence)


def disturb_global_generator(number: int) -> None:
    """Move NumPy's global random stream, which nothing may depend on."""
    np.random.seed(number)  # noqa: NPY002
