"""`Deferrer`, the public class of the learner: routes tasks to the model or an expert within a budget."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deferkit.errors import AlreadySettled, UnknownDecision, expected
from deferkit.events import (
    BudgetChanged,
    Corrected,
    Decided,
    Event,
    Expired,
    Extended,
    Observed,
    Renewed,
    Stopped,
    WarmStarted,
)
from deferkit.learn import settings as arguments
from deferkit.learn import state
from deferkit.learn import state as archive
from deferkit.learn.bulk import BulkLoop, WarmStart
from deferkit.learn.components import Components
from deferkit.learn.core import LINKS
from deferkit.learn.decisions import Decisions, change_budget, extend, grantable, stop, topped_up
from deferkit.learn.display import html_of, plot_of, text_of
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import Exploration
from deferkit.learn.initial_state import new_ledger
from deferkit.learn.ledger import Ledger
from deferkit.learn.pacing import Pacing
from deferkit.learn.settings import DEFAULT_RULE, Settings
from deferkit.types import Amount, Budget, Coefficients, Decision, Drifted, Run, Scores, Summary


class Deferrer:
    """Routes each task to the model or to an expert, learns from rewards and costs, and keeps within a budget.

    A `Deferrer` is not thread-safe: only one thread may use it at a time. A copy (`copy.copy`, `copy.deepcopy`, pickle)
    is an independent learner with the same state; attributes that a subclass adds are not copied.

    Args:
        n_features: The length of a context vector. Required unless an `encoder` is given.
        encoder: Converts named features to context vectors.
        budget: A `Budget`, or one for each resource by name; unlimited by default.
        experts: The names of 1 to 32 experts; ("human",) by default.
        link: The link function of the rewards: "identity", "logistic" for rewards that are 0 or 1, or "auto" (default).
            "auto" is logistic while all rewards are 0 or 1, and switches to "identity" at the first other reward,
            except with another `reward_range`, a logistic `cost_link`, an embedding, `refit` or
            `Exploration(rule="interval")`: then, and with `defaults="2026.11"`, it is "identity".
        cost_link: The link function of the costs; "identity" by default.
        pacing: How the price of the budget moves: a `Pacing`, or its kind alone; "resolve" by default.
        exploration: An `Exploration`, or its scale alone (a width in units of the noise); by default the scale is
            0.3, and 1 for the logistic link.
        ridge: The ridge penalty λ of the estimates, above 0; 0.01 by default, 0.1 for a logistic link.
        warm_up: The number of random decisions at the start; 1 by default, and one for each feature with
            `Exploration(rule="interval")`.
        explore_floor: The share of decisions that are random for ever, for off-policy evaluation, from 0 to 1;
            0 by default.
        reward_range: The least and the largest reward; (0, 1) by default. A reward outside is refused, not clipped.
        forget: "auto" (default) adapts the speed of forgetting to the observed prediction errors, and forgets nothing
            in a stationary stream; "never" gives all observations the same weight, and is the default with an
            embedding, with `refit` or with `Exploration(rule="interval")`.
        refit: Exact refits with a logistic link and `forget="never"`: each time the number of samples has doubled
            ("doubling", the default there), after every sample ("always"), or "never".
        refit_limit: The number of samples after which an estimate is refitted no more; 65,536 by default.
        memory: How many of the latest decisions are remembered, beside older ones that hold budget; 10,000 by default.
        representation: "linear", or "auto": linear estimates and boosted trees, weighted by their prediction errors
            (needs LightGBM: `pip install 'deferkit[trees]'`). By default "auto" with an encoder if LightGBM is
            installed, else "linear".
        embedding: A learned representation, such as a `NeuralEmbedding` or a `TreeEmbedding`; None by default.
        seed: The seed of the random decisions, at least 0; 0 by default.
        confidence: The feature that is the model's own confidence: its index in the context, or its name with an
            encoder. Until there are observations, the model is taken to be the better the higher its confidence ranks,
            and the experts to be right in 90 %. None by default.
        defaults: The version of the default rule: "2026.12" (default), or "2026.11", which has no ranks of the
            features, no prior of the noise, no free exploration, no automatic link and no tested drift alarms.
        without: Parts of the default that a study leaves out: "values", "ranks", "noise prior", "free exploration";
            none by default.

    Raises:
        InvalidArgument: If an argument is of the wrong type or out of range.

    Warns:
        UnaffordableReviewWarning: If a budget is above 0 and smaller than its `max_cost`: nobody can be asked then,
            except where `decide` is told a smaller cost.

    Attributes:
        settings: The arguments, checked, with the defaults that follow from them.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1), seed=4)
    >>> decision = deferrer.decide([0.6, 0.8])
    >>> decision.route, decision.reason, decision.propensity
    ('human', 'warm-up', 0.5)
    >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.4)
    >>> deferrer.summary().spent
    0.4
    """

    settings: Settings

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        *,
        n_features: int | None = None,
        encoder: Encoder | None = None,
        budget: Budget | Mapping[str, Budget] | None = None,
        experts: Sequence[str] = ("human",),
        link: str = "auto",
        cost_link: str = "identity",
        pacing: str | Pacing = "resolve",
        exploration: float | Exploration | None = None,
        ridge: float | None = None,
        warm_up: int | None = None,
        explore_floor: float = 0.0,
        reward_range: tuple[float, float] = (0.0, 1.0),
        forget: str | None = None,
        refit: str | None = None,
        refit_limit: int = 65_536,
        memory: int = 10_000,
        representation: str | None = None,
        embedding: Embedding | None = None,
        seed: int = 0,
        confidence: int | str | None = None,
        defaults: str = DEFAULT_RULE,
        without: Sequence[str] = (),
    ) -> None:
        width = arguments.as_n_features(n_features, encoder)
        explored = arguments.as_exploration(exploration)
        settings = Settings(
            n_features=width,
            budget=arguments.as_budgets(budget),
            experts=arguments.as_experts(experts),
            link=link,
            cost_link=cost_link,
            pacing=arguments.as_pacing(pacing),
            exploration=explored,
            ridge=ridge,
            warm_up=warm_up,
            explore_floor=explore_floor,
            reward_range=reward_range,
            forget=forget,
            refit=refit,
            refit_limit=refit_limit,
            memory=memory,
            embedding=embedding,
            representation=arguments.choose_representation(representation, encoder, embedding, explored, cost_link),
            seed=seed,
            confidence=arguments.as_confidence(confidence, encoder),
            defaults=defaults,
            without=tuple(without),
        )
        arguments.check_encoder_memory(settings, encoder)
        arguments.warn_if_unaffordable(settings.budget)
        self._set_up(settings, new_ledger(settings), encoder)

    def _set_up(self, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> None:
        self.settings = settings
        self._components = Components.of(settings, ledger, encoder)
        self._decisions = Decisions(self._components)
        _, self._ledger, self._reader, self._contexts, self._outcomes, self._representation, _ = self._components
        self._renewals = self._components.renewals
        # the compiled fast path knows nothing of representations, which learn from outcomes as well
        self._try_observe = ledger.core.try_observe if not self._representation.trains else _never_observe

    @classmethod
    def _of(cls, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> Self:
        deferrer = cls.__new__(cls)
        deferrer._set_up(settings, ledger, encoder)
        return deferrer

    @classmethod
    def from_settings(cls, settings: Settings, encoder: Encoder | None = None) -> Self:
        """Return a new learner with settings that were checked before.

        Args:
            settings: The settings, such as those of another learner.
            encoder: Converts named features to context vectors; None (default) for plain vectors.

        Raises:
            InvalidArgument: If the memory is too small for the encoder.

        >>> Deferrer.from_settings(Deferrer(n_features=3, seed=4).settings).settings.seed
        4
        """
        arguments.check_encoder_memory(settings, encoder)
        return cls._of(settings, new_ledger(settings), encoder)

    @classmethod
    def paper(
        cls,
        *,
        n_features: int,
        budget: Budget,
        experts: Sequence[str] = ("human",),
        link: str = "identity",
        cost_link: str | None = None,
        noise: float = 0.1,
        delta: float = 0.05,
        kappa: float = 1.0,
        warm_up: int = 100,
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: int = 0,
    ) -> Self:
        """Return a learner that follows Algorithm 1 of the paper exactly as printed, for comparison.

        Args:
            n_features: The length of a context vector.
            budget: One `Budget`.
            experts: The names of the experts; ("human",) by default.
            link: The link function of the rewards, "identity" (default) or "logistic".
            cost_link: The link function of the costs; `link` by default. In the paper's logistic experiment it is
                linear.
            noise: σ of β(t), the standard deviation of rewards and costs around their mean; 0.1 by default.
            delta: δ of β(t), between 0 and 1; 0.05 by default.
            kappa: κ of β(t); 1 by default, for the logistic link too.
            warm_up: The number of random decisions at the start; 100 by default.
            reward_range: The least and the largest reward; (0, 1) by default.
            seed: The seed of the random decisions; 0 by default.

        Raises:
            InvalidArgument: If an argument is of the wrong type or out of range.

        Warns:
            AssumptionWarning: If the budget is smaller than the paper's guarantee requires.
            UnaffordableReviewWarning: If the budget is above 0 and smaller than its `max_cost`.

        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     deferrer = Deferrer.paper(n_features=20, budget=Budget(8_000, horizon=50_000, max_cost=3))
        >>> print(caught[0].message)
        The paper's guarantee requires B > √d·T^¾ = 14,953; the budget of 8,000 is smaller.
        """
        if not isinstance(budget, Budget):
            raise expected("budget", "Deferrer.paper", "one Budget", budget)
        settings = Settings.paper(
            n_features=n_features,
            budget=budget,
            experts=tuple(experts),
            link=link,
            cost_link=link if cost_link is None else cost_link,
            exploration=Exploration.printed(noise=noise, delta=delta, kappa=kappa),
            warm_up=warm_up,
            reward_range=reward_range,
            seed=seed,
        )
        arguments.warn_if_below_guarantee(n_features, budget)
        arguments.warn_if_unaffordable(settings.budget)
        return cls._of(settings, new_ledger(settings), None)

    def decide(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
        at: float | datetime | None = None,
    ) -> Decision:
        """Route a task, and reserve what the route may cost: `renewals`, then `propose`, each with `apply`.

        Args:
            context: A vector of `n_features` numbers, or named features with an encoder.
            cost: The cost of each expert, if it is known before the task is decided: an amount, or amounts by expert if
                there are several. None (default) if costs are to be estimated.
            available: The names of the experts who can be asked; None (default) for all of them.
            force: A decider that the caller prescribes: the outcome is booked and learned, but the route is not the
                policy's choice. None (default) lets the policy choose.
            at: When the task came: seconds since 1970, or a datetime with a time zone. To be given if and only if a
                budget has `until` or `every`. A time before that of an earlier task counts as that.

        Returns:
            The decision. Its `id` identifies it in `observe`, `correct` and `expire`.

        Raises:
            InvalidArgument: If an argument is of the wrong type or out of range; nothing is decided.
            BudgetExhausted: If the budget left is too small for a forced route.

        >>> deferrer = Deferrer(n_features=1, experts=["ann", "bo"], budget=Budget(10, horizon=100, max_cost=1))
        >>> print(deferrer.decide([1.0], force="bo").explain())
        Task 0 goes to bo, because the caller said so.
        >>> deferrer.decide([1.0], available=[]).reason
        'unavailable'
        """
        if cost is None and available is None and force is None:
            return self._decisions.decide(context, at)
        return self._decisions.decide_with(context, cost, available, force, at)

    def propose(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
        at: float | datetime | None = None,
    ) -> Decided:
        """Return the decision that `decide` would make, as an event for `apply`; the learner does not change.

        Args:
            context: A vector of `n_features` numbers, or named features with an encoder.
            cost: The cost of each expert, if it is known before the task is decided: an amount, or amounts by expert if
                there are several. None (default) if costs are to be estimated.
            available: The names of the experts who can be asked; None (default) for all of them.
            force: A decider that the caller prescribes: the outcome is booked and learned, but the route is not the
                policy's choice. None (default) lets the policy choose.
            at: When the task came: seconds since 1970, or a datetime with a time zone. To be given if and only if a
                budget has `until` or `every`. A time before that of an earlier task counts as that.

        Raises:
            InvalidArgument: If an argument is of the wrong type or out of range.
            BudgetExhausted: If the budget left is too small for a forced route.
            EventOutOfOrder: If a renewal is due before this time: apply the events of `renewals` first.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> event = deferrer.propose([1.0], force="human")
        >>> event == deferrer.propose([1.0], force="human")
        True
        >>> deferrer.apply(event)
        >>> deferrer.summary().reserved
        1.0
        """
        return self._decisions.propose(context, cost, available, force, at)

    def renewals(self, at: float | datetime) -> list[Renewed]:
        """Return the renewals of budgets that are due at a time, as events for `apply`; the learner does not change.

        `decide`, `decide_many` and `run` apply them before the decision that they come before.

        Args:
            at: Seconds since 1970, or a datetime with a time zone.

        Raises:
            InvalidArgument: If it is no time, or no budget has `until` or `every`.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, every="day", max_cost=1))
        >>> _ = deferrer.decide([1.0], at=0)
        >>> deferrer.renewals(at=200_000)[-1]
        Renewed(resource='cost', start=172800.0, end=259200.0, total=10.0)
        """
        time = self._renewals.as_time(at)
        return [] if time is None else self._renewals.list_due(time)

    def decide_many(self, contexts: Any, *, at: Any = None) -> list[Decision]:
        """Decide several tasks in order, with the same decisions as that many calls of `decide`.

        Args:
            contexts: [n, n_features] numbers, or n rows of named features; lists, arrays, pandas or polars frames.
            at: When the tasks came, one time for all or one for each, as in `decide`; None by default.

        Raises:
            InvalidArgument: If a context is invalid; none is decided then.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1))
        >>> [decision.id for decision in deferrer.decide_many([[0.0, 1.0], [1.0, 0.0]])]
        [0, 1]
        """
        rows = self._contexts.rows(contexts)
        if rows is None:
            return self._decisions.decide_many(self._contexts.matrix(contexts), at)
        times = self._decisions.times_of(at, len(rows)).tolist() or [None] * len(rows)
        return [self._decisions.decide(row, time) for row, time in zip(rows, times, strict=True)]

    def score(self, contexts: Any) -> Scores:
        """Return estimates, widths and the route of each context, as if it came next; the learner does not change.

        Args:
            contexts: [n, n_features] numbers, or n rows of named features; lists, arrays, pandas or polars frames.

        Raises:
            InvalidArgument: If a context is invalid.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1), warm_up=0)
        >>> deferrer.score([[0.0, 1.0], [1.0, 0.0]]).estimates["model"]
        array([0.5, 0.5])
        """
        return self._reader.scores(self._representation.transform(self._contexts.matrix(contexts)))

    def observe(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Learn rewards and book the cost of a decision. They may come in any order, in one call or several.

        Repeating an observation changes nothing.

        Args:
            decision: The id of the decision.
            rewards: Rewards that became known, by decider, of any decider; None (default) for none.
            cost: What the decision cost, in the unit of the budget, by resource if there are several. None (default) if
                it is not known yet; only 0 is valid where the model decided. A cost that was announced to `decide`, or
                the `fixed_cost` of the budget, is booked with the reward of the expert and need not be reported.

        Raises:
            InvalidArgument: If a reward or the cost is out of range, or a name is unknown; nothing is observed then.
            UnknownDecision: If there is no such decision.
            AlreadySettled: If the decision is no longer remembered.
            ConflictingObservation: If a value differs from the one observed before; `correct` replaces it.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"model": 0.7, "human": 0.9})
        >>> deferrer.observe(decision.id, cost=0.4)
        >>> deferrer.summary().spent, deferrer.summary().reserved
        (0.4, 0.0)
        """
        if not self._try_observe(decision, rewards, cost):
            self._outcomes.observe(decision, rewards, cost)

    def observation(
        self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None
    ) -> Observed:
        """Return the outcome that `observe` would book and learn, as an event for `apply`; the learner does not change.

        The event has the cost that was announced, where `observe` would book it.

        Args:
            decision: The id of the decision.
            rewards: Rewards by decider; None (default) for none.
            cost: What the decision cost; None (default) if it is not known, or was announced.

        Raises:
            DeferkitError: As `observe` does.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> decision = deferrer.decide([1.0], cost=2, force="human")
        >>> deferrer.observation(decision.id, {"human": 1.0})
        Observed(id=0, rewards={'human': 1.0}, cost=2.0)
        """
        _, _, new_cost = self._outcomes.new_values(decision, rewards, cost, announced=True)
        due = cost is None and new_cost is not None
        return Observed(decision, dict(rewards or {}), self._reader.amount(new_cost) if due and new_cost else cost)

    def check_observation(
        self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None
    ) -> None:
        """Raise what `observe` would raise; the learner does not change.

        Args:
            decision: The id of the decision.
            rewards: Rewards by decider; None (default) for none.
            cost: What the decision cost; None (default) if it is not known.

        Raises:
            DeferkitError: As `observe` does.

        >>> Deferrer(n_features=1).check_observation(7)
        Traceback (most recent call last):
        deferkit.errors.UnknownDecision: There is no decision 7. There are: none yet.
        """
        self._outcomes.new_values(decision, rewards, cost)

    def longest_step(self, decision: int | None = None, rewards: Mapping[str, float] | None = None) -> int:
        """Return the number of multiplications a call may take beyond its usual ones; each takes about a nanosecond.

        An observation now and then recomputes matrices, in O(n_features³), or fits everything observed once more. So
        does the first reward that switches an automatic link, and one of the first 100 decisions.

        Args:
            decision: The id of the decision that is to be observed or corrected. None (default) for the next `decide`.
            rewards: The rewards that are to be observed, by decider; None (default) if they are not known.

        Raises:
            UnknownDecision: If there is no such decision.
            AlreadySettled: If the decision is no longer remembered.

        >>> deferrer = Deferrer(n_features=200, forget="never")
        >>> usual, large = (deferrer.decide([value] * 200).id for value in (0.01, 1e6))
        >>> deferrer.longest_step(usual), deferrer.longest_step(large) > 20_000_000
        (0, True)
        """
        if decision is None:
            return self._decisions.longest_step()
        ledger = self._ledger
        switches = rewards is not None and ledger.switches_link(rewards.values())
        relearning = ledger.relearning_step() if switches else 0
        return ledger.longest_step(decision) + relearning + self._representation.observing_step(switches=switches)

    def check_decision(self, event: Decided) -> None:
        """Raise what `apply` would raise for a decision; the learner does not change.

        Args:
            event: What `propose` returned.

        Raises:
            DeferkitError: As `apply` does.

        >>> deferrer = Deferrer(n_features=1)
        >>> event = deferrer.propose([1.0])
        >>> deferrer.apply(event)
        >>> deferrer.check_decision(event)
        Traceback (most recent call last):
        deferkit.errors.EventOutOfOrder: The next decision is 1. Got decision 0.
        """
        self._decisions.check(event)

    def observe_many(
        self,
        decisions: Sequence[int],
        rewards: Mapping[str, ArrayLike] | None = None,
        cost: Any = None,
    ) -> None:
        """Observe several decisions: all of them, or none if one observation is invalid.

        Args:
            decisions: The ids of n decisions.
            rewards: [n] rewards by decider, NaN where one is not known; None (default) for none.
            cost: [n] costs, by resource if there are several, NaN where one is not known; None (default) for none.

        Raises:
            InvalidArgument: If an argument is of the wrong shape or out of range.
            UnknownDecision: If there is no such decision.
            AlreadySettled: If a decision is no longer remembered.
            ConflictingObservation: If a value differs from the one observed before.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> ids = [decision.id for decision in deferrer.decide_many([[1.0], [1.0]])]
        >>> deferrer.observe_many(ids, rewards={"model": [0.5, float("nan")]})
        """
        self._outcomes.observe_many(decisions, rewards, cost)

    def correct(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Replace rewards or the cost that were observed before.

        Args:
            decision: The id of the decision.
            rewards: The correct rewards by decider; None (default) if they stay.
            cost: The correct cost, in the unit of the budget; None (default) if it stays.

        Raises:
            InvalidArgument: If a value was not observed before, or is out of range.
            UnknownDecision: If there is no such decision.
            AlreadySettled: If the decision is no longer remembered.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.4)
        >>> deferrer.correct(decision.id, cost=0.5)
        >>> deferrer.summary().spent
        0.5
        """
        self._outcomes.correct(decision, rewards, cost)

    @property
    def link(self) -> str:
        """The link function of the rewards in use: that of the settings, or what "auto" has come to.

        >>> Deferrer(n_features=1, defaults="2026.12").link
        'logistic'
        """
        return LINKS[self._ledger.get("reward_link")]

    def expire(self, decision: int) -> None:
        """Release the reservation of a decision whose cost will not be reported.

        A cost that comes later is still booked while the decision is remembered.

        Args:
            decision: The id of the decision.

        Raises:
            UnknownDecision: If there is no such decision.
            AlreadySettled: If the decision is no longer remembered.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.expire(deferrer.decide([1.0], force="human").id)
        >>> deferrer.summary().reserved, deferrer.summary().expired
        (0.0, 1)
        """
        self._outcomes.expire(decision)

    def extend(self, decision: int, amount: Amount) -> Amount:
        """Reserve more for a pending review; return how much was added.

        That is less than asked for where less is left, and at most up to the `max_cost` and the `limit` of one review.
        A review that uses more than its hold is stopped: `stop`.

        Args:
            decision: The id of the decision.
            amount: What to add to its hold, in the unit of the budget, by resource if there are several.

        Raises:
            InvalidArgument: If the amount is invalid.
            UnknownDecision: If there is no such decision.
            AlreadySettled: If the decision holds no budget.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=4, hold=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.extend(decision.id, 2.5), deferrer.extend(decision.id, 2.5)
        (2.5, 0.5)
        """
        granted = grantable(self._components, decision, amount)
        extend(self._components, decision, granted)
        return granted

    def stop(self, decision: int, cost: Amount, rewards: Mapping[str, float] | None = None) -> None:
        """Book the cost of a review that was stopped before it was done. The model's answer stands.

        Args:
            decision: The id of the decision.
            cost: What the review cost until it was stopped, in the unit of the budget.
            rewards: Rewards that are known, by decider, such as the model's; None (default) for none.

        Raises:
            InvalidArgument: If the cost is out of range, or the model decided.
            UnknownDecision: If there is no such decision.
            AlreadySettled: If the decision is no longer remembered.
            ConflictingObservation: If another cost was observed before.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=4, hold=1))
        >>> deferrer.stop(deferrer.decide([1.0], force="human").id, cost=1.0)
        >>> deferrer.summary().spent, deferrer.summary().stopped
        (1.0, 1)
        """
        stop(self._components, decision, cost, rewards)

    def remembers(self, decision: int) -> bool:
        """Whether a decision can still be observed: it is one of the last `memory`, or it holds budget.

        Args:
            decision: The id of the decision.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.remembers(deferrer.decide([1.0]).id), deferrer.remembers(7)
        (True, False)
        """
        try:
            self._ledger.slot(decision)
        except (AlreadySettled, UnknownDecision):
            return False
        return True

    def change_budget(
        self,
        total: Amount | None = None,
        *,
        add: Amount | None = None,
        horizon: Any = None,
        until: Any = None,
        allowance: Any = None,
    ) -> None:
        """Change the total of the budget, its horizon, its end or its allowance, and let the pacing react.

        Args:
            total: The new total, by resource if there are several; infinite if and only if it was before. With `every`
                it is the sum of all periods so far, as in `summary()`. None (default) if it stays.
            add: What is added to the total, or taken from it if negative, by resource if there are several; with
                `every` in this period alone. None (default) for nothing.
            horizon: The new number of tasks that the total must last for, counted from the first decision. By resource
                if there are several, and only those that change. None (default) if it stays.
            until: The new end of a budget with `until`: seconds since 1970, or a datetime with a time zone; likewise.
            allowance: What a budget with `every` gets at each renewal from now on; likewise.

        Raises:
            InvalidArgument: If a value is not valid, or not one of this kind of budget.
            BudgetExhausted: If the total is less than what is spent and reserved.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.change_budget(20)
        >>> deferrer.summary().left
        20.0
        """
        event = BudgetChanged(topped_up(self._components, total, add), horizon, until, allowance)
        self._change_budget(event)

    def _change_budget(self, event: BudgetChanged) -> None:
        change_budget(self._components, event)
        self._decisions.find_horizon()

    def warm_start(
        self,
        contexts: Any,
        rewards: Mapping[str, ArrayLike],
        *,
        expert: str | None = None,
        cost: Any = None,
    ) -> None:
        """Learn from n labelled tasks that this learner did not decide, and shorten the warm-up.

        The warm-up gets shorter by the number of labels of the decider that has the fewest.

        Args:
            contexts: [n, n_features] numbers, or n rows of named features; lists, arrays, pandas or polars frames.
            rewards: [n] rewards by decider, NaN where one is not known; deciders may be left out.
            expert: The name of the expert whose costs are given; the first expert by default.
            cost: [n] costs of that expert, by resource if there are several, NaN where one is not known; None (default)
                for none.

        Raises:
            InvalidArgument: If an argument is of the wrong shape or out of range, or there are fewer than 16 rows while
                the encoder's scales are not frozen.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.warm_start([[1.0], [0.5]], {"model": [0.6, 0.3], "human": [0.9, 0.4]}, cost=[0.5, 0.2])
        >>> deferrer.decide([1.0]).reason
        'worth it'
        """
        WarmStart(self._components, self._decisions).learn(contexts, rewards, expert, cost)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        model_reward: str = "model_reward",
        human_reward: str = "human_reward",
        cost: str = "cost",
        context: str = "x_*",
        confidence: str | None = None,
        budget: Budget | Mapping[str, Budget] | None = None,
        expert: str | None = None,
        **settings: Any,
    ) -> Self:
        """Return a learner that was fitted to a table of past tasks: encoder and estimates. Needs `deferkit[study]`.

        Rewards and costs may be missing. Contexts are named features, with the names of the columns.

        Args:
            table: A path (CSV, Parquet, Excel), a pandas or polars frame, or columns by name.
            model_reward: The column of the model's rewards.
            human_reward: The column of the expert's rewards.
            cost: The column of the expert's costs.
            context: The columns of the context: names or globs, separated by commas.
            confidence: The column of the model's confidence in its own answer, or "none". By default it is looked for
                by name, range and the rows of the table.
            budget: The budget of the tasks to come; unlimited by default.
            expert: The expert who reviewed the tasks of the table; the first expert by default.
            settings: Other arguments of a `Deferrer`. By default `defaults` is "2026.12", `link` is "auto" if all
                rewards are 0 or 1, else "identity", and `reward_range` is unbounded if a reward is outside [0, 1].

        Raises:
            InvalidArgument: If the table cannot be read, or a column is missing or invalid.

        Warns:
            ConfidenceWarning: If a column was found that is, or may be, the model's confidence.

        >>> reviews = {"x_size": [1.0, 9.0] * 10, "x_kind": ["a", "b"] * 10, "right": [1, 0] * 10}
        >>> reviews |= {"expert_right": [None, 1] * 10, "minutes": [None, 2.5] * 10}
        >>> names = {"model_reward": "right", "human_reward": "expert_right", "cost": "minutes"}
        >>> deferrer = Deferrer.from_table(reviews, **names, budget=Budget(50, horizon=100, max_cost=5))
        >>> deferrer.decide({"x_size": 8.0, "x_kind": "b"}).route
        'human'
        """
        from deferkit.tables.history import learner_from_table  # noqa: PLC0415 - an extra

        columns = (context, model_reward, human_reward, cost)
        return learner_from_table(
            cls, table, columns, confidence=confidence, budget=budget, expert=expert, settings=settings
        )

    def run(
        self,
        contexts: Any,
        rewards: Mapping[str, ArrayLike],
        cost: Any = None,
        *,
        feedback: str = "full",
        progress: Callable[[int], None] | None = None,
        at: Any = None,
    ) -> Run:
        """Decide a stream of n tasks whose outcomes are known in advance, and observe each before the next.

        The same decisions as n calls of `decide` and `observe`, in one compiled loop.

        Args:
            contexts: [n, n_features] numbers, or n rows of named features; lists, arrays, pandas or polars frames.
            rewards: [n] rewards of every decider by name.
            cost: [n] costs of the expert; by expert if there are several, then by resource if there are several. None
                (default) where all budgets have a `fixed_cost`.
            feedback: What is observed: "full" (default), the model's reward always and the expert's if it is asked;
                "bandit", the reward of the chosen decider; "reviewed", nothing unless an expert is asked, then both.
            progress: Called with the number of tasks done since its last call; None (default) for no calls.
            at: When the tasks came, one time for all or one for each, as in `decide`; None by default.

        Raises:
            InvalidArgument: If an argument is of the wrong shape or out of range; no task is decided then.

        >>> rng = np.random.default_rng(0)
        >>> deferrer = Deferrer(n_features=2, budget=Budget(20, horizon=200, max_cost=1))
        >>> rewards = {"model": rng.random(200), "human": rng.random(200)}
        >>> run = deferrer.run(rng.random((200, 2)), rewards, cost=rng.random(200))
        >>> bool(run.costs.sum() <= 20)
        True
        """
        return BulkLoop(self._components, self._decisions).run(contexts, rewards, cost, feedback, progress, at)

    def apply(self, event: Event, *, warn: bool = True) -> None:
        """Apply an event. The same events in the same order give the same state, bit for bit.

        A switch of an automatic link raises no warning: applications that keep events read `link`.

        Args:
            event: One of the events of `deferkit.events`.
            warn: Whether to warn that a horizon is over; True by default. Warning filters are not safe for threads,
                so that a program with several of them passes False.

        Raises:
            InvalidArgument: If the event, or a value in it, is invalid.
            EventOutOfOrder: If it decides another task than the next one.
            DeferkitError: As `observe`, `correct`, `expire`, `extend`, `stop` and `change_budget` do.

        >>> from deferkit import Budget, Deferrer, Observed
        >>> first, second = (Deferrer(n_features=1, budget=Budget(10, horizon=100)) for _ in range(2))
        >>> for event in [first.propose([1.0]), Observed(0, {"model": 0.5}, None)]:
        ...     first.apply(event)
        ...     second.apply(event)
        >>> first == second
        True
        """
        if isinstance(event, Decided):
            self._decisions.apply(event, warn)
            return
        self._outcomes.warns = False
        try:
            self._apply_outcome(event)
        finally:
            self._outcomes.warns = True

    def _apply_outcome(self, event: Event) -> None:
        """Apply an event other than `Decided`."""
        if isinstance(event, Observed):
            if not self._try_observe(event.id, event.rewards, event.cost):
                self._outcomes.observe(event.id, event.rewards, event.cost, announced=False)
        elif isinstance(event, Corrected):
            self.correct(event.id, event.rewards, event.cost)
        elif isinstance(event, Expired):
            self.expire(event.id)
        elif isinstance(event, BudgetChanged):
            self._change_budget(event)
        elif isinstance(event, Renewed):
            self._renewals.apply(event)
        elif isinstance(event, Extended):
            extend(self._components, event.id, event.amount)
        elif isinstance(event, Stopped):
            self.stop(event.id, event.cost, event.rewards)
        elif isinstance(event, WarmStarted):
            contexts: Any = event.contexts
            self.warm_start(contexts, event.rewards, expert=event.expert, cost=event.costs)
        else:
            raise expected("event", "call of apply", "one of the events of deferkit.events", event)

    def coefficients(self) -> dict[str, Coefficients]:
        """Return the estimated coefficients of each reward (by decider) and each cost ("cost of …").

        With an `Encoder` they carry the names of its features; columns that trees have made are numbered.

        >>> sorted(Deferrer(n_features=2, budget=Budget(10, horizon=100)).coefficients())
        ['cost of human', 'human', 'model']
        """
        found, encoder = self._reader.coefficients(), self._contexts.encoder
        if encoder is None or self.settings.kind.replaces:  # an embedding's columns have no names
            return found
        names = (*encoder.names, *self.settings.kind.column_names(self.settings.shape)[encoder.n_features :])
        return {target: each._replace(names=names) for target, each in found.items()}

    def vectors(self, contexts: Any) -> NDArray[np.float64]:
        """Return contexts as vectors [n, d] for `coefficients`: encoded, and with the columns of a representation.

        Args:
            contexts: [n, n_features] numbers, or n rows of named features; lists, arrays, pandas or polars frames.

        Raises:
            InvalidArgument: If a context is invalid.

        >>> Deferrer(n_features=2).vectors([[0.0, 1.0], [1.0, 0.0]]).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        return self._contexts.vectors(contexts)

    def drifts(self) -> tuple[Drifted, ...]:
        """Return the latest drift of each reward and cost that has drifted, in the order of detection.

        A drift is reported when estimates that forget nothing predict so badly that they have lost nearly all weight.

        >>> Deferrer(n_features=2).drifts()
        ()
        """
        return self._reader.drifts()

    def representation_shares(self) -> dict[str, dict[str, float]]:
        """Return the weight of linear estimates, trees and ranks in the estimate of each reward and cost.

        They add up to 1.

        >>> list(Deferrer(n_features=2).representation_shares()["human"])
        ['linear', 'ranks']
        """
        return self._reader.representation_shares()

    @property
    def fitting(self) -> bool:
        """Whether trees are being fitted in the background; `to_bytes` and `save` would wait for them.

        >>> Deferrer(n_features=2).fitting
        False
        """
        return self._representation.fitting

    @property
    def awaits_fit(self) -> bool:
        """Whether the next observation would wait for a fit in the background. Decisions never wait.

        >>> Deferrer(n_features=2).awaits_fit
        False
        """
        return self.fitting and self._representation.observations_until_retraining() == 1

    def summary(self) -> Summary:
        """Return counts, budget, price, noise and estimates as they are now, and a remark if few are asked.

        >>> Deferrer(n_features=1, budget=Budget(10, horizon=100)).summary().left
        10.0
        """
        return self._reader.summary()

    def figures(self) -> Summary:
        """Return the summary without `estimates` and `remark`, for callers that read counts and amounts often.

        >>> Deferrer(n_features=1, budget=Budget(10, horizon=100)).figures().left
        10.0
        """
        return self._reader.figures()

    def __repr__(self) -> str:
        """Return the state in lines: who decides, spending, price, gain and beliefs."""
        return text_of(self._reader, type(self).__name__)

    def _repr_html_(self) -> str:
        return html_of(self._reader, type(self).__name__)

    def plot(self) -> Any:
        """Return spending against the plan, and the gain over the model, of the remembered tasks as an Altair chart.

        The gain is what experts earned less what the model earned on the same tasks, or is expected to have earned
        where its reward is not known. Earlier prices are not remembered: the subtitle has the present one. With several
        resources spending is that of the first.

        Raises:
            MissingExtra: If Altair is not installed (`pip install 'deferkit[study]'`).

        >>> type(Deferrer(n_features=1, budget=Budget(10, horizon=100)).plot()).__name__
        'HConcatChart'
        """
        return plot_of(self._reader, next(iter(self.settings.budget.values())))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the complete state to one file, atomically; `deferkit.learn.state` describes the format.

        Args:
            path: The file; one that exists is replaced.

        Raises:
            InvalidArgument: If there is a folder, or something else that is not an ordinary file.
            UnwritableState: If it cannot be written, as on a full disk; the file that was there stays.

        >>> import tempfile, pathlib
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> _ = deferrer.decide([1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     deferrer.save(pathlib.Path(folder, "a.state"))
        ...     Deferrer.load(pathlib.Path(folder, "a.state")) == deferrer
        True
        """
        state.write(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the complete state as the bytes that `save` writes.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> Deferrer.from_bytes(deferrer.to_bytes()) == deferrer
        True
        """
        return archive.to_bytes(self._components)

    @property
    def n_bytes(self) -> int:
        """The size of the arrays that hold estimates, remembered decisions and samples, in bytes.

        >>> Deferrer(n_features=100, memory=1_000).n_bytes > 8 * 100 * 1_000
        True
        """
        return self._ledger.n_bytes

    def copy_state(self) -> archive.StateCopy:
        """Return a copy of the state, whose `to_bytes()` another thread may call while this learner goes on.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> before, copied = deferrer.to_bytes(), deferrer.copy_state()
        >>> decision = deferrer.decide([1.0])
        >>> copied.to_bytes() == before != deferrer.to_bytes()
        True
        """
        return archive.copy_state(self._components)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, embedding: Embedding | None = None) -> Self:
        """Return the learner saved in a file; it continues bit for bit.

        Args:
            path: A file that `save` wrote, with this version or an earlier one.
            embedding: Required if the learner was made with a torch module of your own, because code is not saved: the
                same `NeuralEmbedding` again. None by default.

        Raises:
            UnreadableState: If the file cannot be read, is damaged or inconsistent.
            InvalidArgument: If the learner was made with another `embedding`, or with a torch module that is not given.

        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Deferrer(n_features=3).save(pathlib.Path(folder, "a.state"))
        ...     Deferrer.load(pathlib.Path(folder, "a.state")).settings.n_features
        3
        """
        return cls.from_bytes(state.read_file(path), str(path), embedding=embedding)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "The state", *, embedding: Embedding | None = None) -> Self:
        """Restore a learner from `to_bytes()`.

        Args:
            data: The bytes of a state file.
            source: The name of the data in error messages; "The state" by default.
            embedding: As in `load`.

        Raises:
            UnreadableState: If the bytes are not a state file, are damaged or inconsistent.
            InvalidArgument: If the learner was made with another `embedding`, or with a torch module that is not given.

        >>> Deferrer.from_bytes(Deferrer(n_features=3).to_bytes()).settings.n_features
        3
        """
        saved = archive.SavedLearner.from_bytes(data, source, embedding)
        with saved.errors_as_unreadable_state():
            deferrer = cls._of(saved.settings(), saved.ledger(), saved.encoder())
            saved.restore(deferrer._components)
        return deferrer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Deferrer):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def __reduce__(self) -> tuple[Any, ...]:
        # copied and pickled through the state file: two learners must not share arrays
        return _from_bytes, (type(self), self.to_bytes(), self.settings.embedding)


def _never_observe(decision: object, rewards: object, cost: object) -> bool:
    del decision, rewards, cost
    return False


def _from_bytes(kind: type[Deferrer], data: bytes, embedding: Embedding | None) -> Deferrer:
    return kind.from_bytes(data, embedding=embedding)
