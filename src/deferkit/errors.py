"""Errors and warnings of deferkit; all errors have one base class."""

from collections.abc import Iterable


class DeferkitError(Exception):
    """Base class of all errors that deferkit raises.

    >>> from deferkit import Budget, DeferkitError
    >>> try:
    ...     Budget(-1, horizon=10)
    ... except DeferkitError as error:
    ...     print(error)
    The 'total' of a Budget must be a number of at least 0. Got -1 instead.
    """


class InvalidArgument(DeferkitError, ValueError):
    """An argument has the wrong type, shape or range; nothing was changed.

    >>> from deferkit import Budget, Deferrer, InvalidArgument
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> try:
    ...     deferrer.decide([1.0, 2.0])
    ... except InvalidArgument as error:
    ...     print(error)
    The 'context' of a Deferrer must be 1 numbers. Got the shape (2,) instead.
    """


class MissingData(InvalidArgument):
    """A data set was not found; the message says where to get it and where to put it.

    >>> from deferkit.errors import MissingData
    >>> raise MissingData("The data set ImageNet16H is not shipped with deferkit.")
    Traceback (most recent call last):
    deferkit.errors.MissingData: The data set ImageNet16H is not shipped with deferkit.
    """


class MissingExtra(InvalidArgument, ImportError):
    """A library is not installed; the message names the extra of deferkit that installs it.

    >>> from deferkit.errors import MissingExtra
    >>> raise MissingExtra("A TreeEmbedding needs lightgbm: pip install 'deferkit[trees]'.")
    Traceback (most recent call last):
    deferkit.errors.MissingExtra: A TreeEmbedding needs lightgbm: pip install 'deferkit[trees]'.
    """


class UnknownDecision(DeferkitError, KeyError):
    """No decision has this id.

    >>> from deferkit import Budget, Deferrer, UnknownDecision
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> try:
    ...     deferrer.observe(7, {"model": 0.5})
    ... except UnknownDecision as error:
    ...     print(error)
    There is no decision 7. There are: none yet.
    """

    def __str__(self) -> str:
        # KeyError would show the repr of the message, with quotes.
        return str(self.args[0])


class AlreadySettled(DeferkitError):
    """The decision is settled and older than the last `memory` decisions, so its outcome is no longer stored.

    >>> from deferkit import Budget, Deferrer, AlreadySettled
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> ids = [deferrer.decide([1.0], force="model").id for _ in range(3)]
    >>> try:
    ...     deferrer.observe(ids[0], {"model": 0.5})
    ... except AlreadySettled as error:
    ...     print(str(error)[:30])
    Decision 0 is already settled;
    """


class ConflictingObservation(DeferkitError):
    """An observation contradicts an earlier one, which stays; `Deferrer.correct` replaces it.

    >>> from deferkit import Budget, Deferrer, ConflictingObservation
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> deferrer.observe(deferrer.decide([1.0], force="model").id, {"model": 0.5})
    >>> try:
    ...     deferrer.observe(0, {"model": 0.75})
    ... except ConflictingObservation as error:
    ...     print(error)
    The reward of model for decision 0 was observed as 0.5. Got 0.75.
    """


class BudgetExhausted(DeferkitError):
    """The budget left is too small for a forced route, or for a lower total.

    >>> from deferkit import Budget, Deferrer, BudgetExhausted
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> _ = deferrer.decide([1.0], force="human")
    >>> try:
    ...     deferrer.decide([1.0], force="human")
    ... except BudgetExhausted as error:
    ...     print(error)
    Asking human needs 1 of budget; 0 is free.
    """


class EventOutOfOrder(DeferkitError):
    """An event was applied to a learner whose next decision is another one.

    >>> from deferkit import Budget, Deferrer, EventOutOfOrder
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> event = deferrer.propose([1.0])
    >>> deferrer.apply(event)
    >>> try:
    ...     deferrer.apply(event)
    ... except EventOutOfOrder as error:
    ...     print(error)
    The next decision is 1. Got decision 0.
    """


class UnreadableState(DeferkitError):
    """A file is not a state file that this version can load: damaged, inconsistent or too new.

    >>> from deferkit import Budget, Deferrer, UnreadableState
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> try:
    ...     Deferrer.from_bytes(b"hello", "greeting.txt")
    ... except UnreadableState as error:
    ...     print(error)
    greeting.txt is not a deferkit state: it does not start with 'deferkit-state'.
    """


class UnwritableState(DeferkitError, OSError):
    """A state file could not be written: a full disk, no such folder, no permission. `errno` is that of the system.

    >>> from deferkit import Budget, Deferrer, UnwritableState
    >>> deferrer = Deferrer(n_features=1, budget=Budget(1, horizon=100, max_cost=1), memory=2, pacing="adaptive")
    >>> try:
    ...     deferrer.save("/nowhere/reviews.state")
    ... except UnwritableState as error:
    ...     print(error)
    /nowhere/reviews.state cannot be written: No such file or directory.
    """


class StudyFailed(DeferkitError):
    """A study could not be finished; finished trials are saved.

    >>> from deferkit.errors import StudyFailed
    >>> raise StudyFailed("1 of 20 trials failed; the others are saved.")
    Traceback (most recent call last):
    deferkit.errors.StudyFailed: 1 of 20 trials failed; the others are saved.
    """


class UnreadableResults(DeferkitError):
    """A results file is damaged, or of another version.

    >>> from deferkit.errors import UnreadableResults
    >>> raise UnreadableResults("trials/0.parquet cannot be read. Delete it, and its trials run again.")
    Traceback (most recent call last):
    deferkit.errors.UnreadableResults: trials/0.parquet cannot be read. Delete it, and its trials run again.
    """


class ServiceError(DeferkitError):
    """The service refused a call for a reason that the library has no error for: no valid key, no such policy.

    Args:
        detail: The message of the service.
        status: The HTTP status; None (default) if there was no response.

    >>> from deferkit import ServiceError
    >>> error = ServiceError("There is no policy 'claims'.", status=404)
    >>> print(error, error.status)
    There is no policy 'claims'. 404
    """

    def __init__(self, detail: str, *, status: int | None = None) -> None:
        super().__init__(detail)
        self.status = status


class ServiceUnavailable(ServiceError):
    """The service was unreachable or too busy until the client gave up retrying. The call can be repeated.

    >>> from deferkit import Client, ServiceUnavailable
    >>> with Client("http://127.0.0.1:9", policy="claims", total_s=0.01) as client:
    ...     try:
    ...         client.summary()
    ...     except ServiceUnavailable as error:
    ...         print(str(error)[:46])
    http://127.0.0.1:9 cannot be reached or did no
    """


class AssumptionWarning(UserWarning):
    """The guarantee of the paper does not cover these settings.

    >>> import warnings
    >>> from deferkit import AssumptionWarning, Budget, Deferrer
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", AssumptionWarning)
    ...     deferrer = Deferrer.paper(n_features=4, budget=Budget(5, horizon=100, max_cost=1))
    """


class MissingTreesWarning(UserWarning):
    """The representation "auto" was requested, but LightGBM is not installed: estimates are linear.

    >>> from deferkit import MissingTreesWarning
    >>> issubclass(MissingTreesWarning, UserWarning)
    True
    """


class UnaffordableReviewWarning(UserWarning):
    """A budget is smaller than its `max_cost`, which is reserved for each deferral: nobody can be asked.

    >>> import warnings
    >>> from deferkit import Budget, Deferrer, UnaffordableReviewWarning
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=100))
    >>> [warning.category is UnaffordableReviewWarning for warning in caught]
    [True]
    """


class LinkWarning(UserWarning):
    """Rewards were 0 or 1 so far and another one came: `link="auto"` has switched from logistic to the identity.

    >>> import warnings
    >>> from deferkit import Deferrer, LinkWarning
    >>> deferrer = Deferrer(n_features=1)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     for reward in (1.0, 0.0, 0.5):
    ...         deferrer.observe(deferrer.decide([1.0]).id, rewards={"model": reward})
    >>> [warning.category is LinkWarning for warning in caught]
    [True]
    """


class ConfidenceWarning(UserWarning):
    """`Deferrer.from_table` took a column for the model's confidence that nobody named, or found two that may be it.

    `confidence=` names the column, or "none", and there is no warning.

    >>> import warnings
    >>> from deferkit import ConfidenceWarning, Deferrer
    >>> reviews = {"x_score": [0.5, 0.9, 0.7, 0.8] * 5, "model_reward": [0, 1] * 10, "human_reward": [1, 1] * 10}
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     deferrer = Deferrer.from_table(reviews | {"cost": [2.5] * 20})
    >>> [warning.category is ConfidenceWarning for warning in caught]
    [True]
    """


class HorizonWarning(UserWarning):
    """More tasks were decided than the horizon of the budget; the rest is spent at the last price.

    >>> import warnings
    >>> from deferkit import Budget, Deferrer, HorizonWarning
    >>> deferrer = Deferrer(n_features=1, budget=Budget(5, horizon=1, max_cost=1))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     decisions = [deferrer.decide([1.0]) for _ in range(3)]
    >>> [warning.category is HorizonWarning for warning in caught]
    [True]
    """


class SpendingWarning(UserWarning):
    """Less than a quarter of the planned spending is used after a fifth of the horizon; raised once for a learner.

    The message has the reason, and what would change it; `Summary.remark` has both at any time. Learners with
    `defaults="2026.11"` do not raise it.

    >>> import warnings
    >>> from deferkit import Budget, Deferrer, SpendingWarning
    >>> deferrer = Deferrer(n_features=1, budget=Budget(50, horizon=200, max_cost=1), defaults="2026.12")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     decisions = [deferrer.decide([1.0], available=[]) for _ in range(60)]
    >>> [warning.category is SpendingWarning for warning in caught]
    [True]
    """


def expected(name: str, owner: str, what: str, got: object) -> InvalidArgument:
    """Return the error for an invalid argument, always in the same words.

    Args:
        name: The name of the argument.
        owner: The class or call that has it.
        what: What it must be, as it follows "must be".
        got: The value that was given.

    >>> print(expected("ridge", "Deferrer", "a number above 0", -1))
    The 'ridge' of a Deferrer must be a number above 0. Got -1 instead.
    """
    article = "an" if owner[:1] in set("AEIOU") else "a"
    return InvalidArgument(f"The '{name}' of {article} {owner} must be {what}. Got {got!r} instead.")


def closest(name: str, names: Iterable[str]) -> str:
    """Return a question with the most similar of these names, or nothing.

    Args:
        name: What was given.
        names: What there is.

    >>> closest("model_rewrad", ["model_reward", "cost"]), closest("size", ["cost"])
    (" Did you mean 'model_reward'?", '')
    """
    import difflib  # noqa: PLC0415 - for errors only

    by_lower = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" Did you mean {by_lower[found[0]]!r}?" if found else ""
