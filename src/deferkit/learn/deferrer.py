"""The learner that users hold: decides who decides, learns from what comes back, and never overspends."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deferkit.errors import AssumptionWarning, expected
from deferkit.learn import inputs
from deferkit.learn.arrays import ENCODING, NEXT_ID
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import Exploration
from deferkit.learn.learner import SETTLE_AFTER
from deferkit.learn.loop import FEEDBACKS, decide_many, propose_many
from deferkit.learn.pacing import Pacing
from deferkit.learn.saved import SavedLearner
from deferkit.learn.settings import Settings
from deferkit.learn.stream import blank_run, run_through
from deferkit.types import (
    MODEL,
    REASONS,
    Budget,
    Coefficients,
    Decision,
    Run,
    Scores,
    Summary,
)


class Deferrer(SavedLearner):
    """Decides, task by task, whether the model or an expert decides.

    >>> import numpy as np
    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1), seed=4)
    >>> decision = deferrer.decide([0.6, 0.8])
    >>> decision.route, decision.reason, decision.propensity
    ('human', 'warm-up', 0.5)
    >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.4)
    >>> deferrer.summary().spent
    0.4

    `n_features`, or an `encoder` for named features. `exploration` is an `Exploration`, or just its scale; `pacing` a
    `Pacing`, or just its kind. `reward_range` is what a reward may be; it is checked, never clipped. `warm_up`
    decisions are taken at random first, one for each feature unless given. `refit` and `refit_limit` are for links
    other than the identity: exact refits each time the sample has doubled ("doubling"), after every sample ("always")
    or "never", and up to how many samples. `memory` is how many decisions are remembered, beside those that hold
    budget. `embedding` puts a learned representation in front: a `NeuralEmbedding` or a `TreeEmbedding`.

    A `Deferrer` is not thread-safe: one thread at a time.
    """

    def __init__(
        self,
        *,
        n_features: int | None = None,
        encoder: Encoder | None = None,
        budget: Budget | Mapping[str, Budget] | None = None,
        experts: Sequence[str] = ("human",),
        link: str = "identity",
        cost_link: str = "identity",
        pacing: str | Pacing = "resolve",
        exploration: float | Exploration | None = None,
        ridge: float | None = None,
        warm_up: int | None = None,
        explore_floor: float = 0.0,
        reward_range: tuple[float, float] = (0.0, 1.0),
        refit: str = "doubling",
        refit_limit: int = 65_536,
        memory: int = 10_000,
        embedding: Embedding | None = None,
        seed: int = 0,
    ) -> None:
        if (n_features is None) == (encoder is None):
            raise expected("n_features", "Deferrer", "given, or else an encoder", n_features)
        if budget is None:
            budget = Budget.unlimited()
        if isinstance(experts, str) or not isinstance(experts, Sequence):
            raise expected("experts", "Deferrer", "a list of names", experts)
        if encoder is not None and not isinstance(encoder, Encoder):
            raise expected("encoder", "Deferrer", "an Encoder", encoder)
        if exploration is None:
            exploration = Exploration()
        elif not isinstance(exploration, Exploration):
            exploration = Exploration(scale=exploration)
        settings = Settings(
            n_features=encoder.n_features if encoder is not None else cast("int", n_features),
            budget=dict(budget) if isinstance(budget, Mapping) else {"cost": budget},
            experts=tuple(experts),
            link=link,
            cost_link=cost_link,
            pacing=pacing if isinstance(pacing, Pacing) else Pacing(kind=pacing),
            exploration=exploration,
            ridge=ridge,
            warm_up=warm_up,
            explore_floor=explore_floor,
            reward_range=reward_range,
            refit=refit,
            refit_limit=refit_limit,
            memory=memory,
            embedding=embedding,
            seed=seed,
        )
        least = max(settings.warm_up_steps, SETTLE_AFTER)
        if encoder is not None and memory < least:
            raise expected("memory", "Deferrer", f"at least the {least} rows that its encoder settles on", memory)
        self._set_up(settings, settings.ledger(), encoder)

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
    ) -> "Deferrer":
        """Return Algorithm 1 exactly as printed, for comparison; κ = 1 for the logistic link too.

        The cost has the same link unless `cost_link` says so; in the paper's logistic experiment it is linear.

        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     deferrer = Deferrer.paper(n_features=20, budget=Budget(8_000, horizon=50_000, max_cost=3))
        >>> print(caught[0].message)
        The paper's guarantee asks for B > √d·T^¾ = 14,953; the budget of 8,000 is smaller.
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
        least = math.sqrt(n_features) * (budget.horizon or 0) ** 0.75
        if budget.total < least:
            warnings.warn(
                f"The paper's guarantee asks for B > √d·T^¾ = {least:,.0f};"
                f" the budget of {budget.total:,.0f} is smaller.",
                AssumptionWarning,
                stacklevel=2,
            )
        return cls._of(settings, settings.ledger(), None)

    def decide(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
    ) -> Decision:
        """Decide who decides a task, and reserve what it may cost.

        `cost` if it is known beforehand (by expert if there are several), `available` if only some experts are on duty,
        `force` for a route that the caller prescribes: it spends and teaches, but is not the policy's choice.

        >>> deferrer = Deferrer(n_features=1, experts=["ann", "bo"], budget=Budget(10, horizon=100, max_cost=1))
        >>> print(deferrer.decide([1.0], force="bo").explain())
        Task 0 goes to bo, because the caller said so.
        >>> deferrer.decide([1.0], available=[]).reason
        'unavailable'
        """
        if cost is None and available is None and force is None and self._contexts.encoder is None:
            ledger, contexts = self._ledger, self._contexts
            contexts.load(context)
            number = ledger.ints.item(NEXT_ID)
            if number >= self._attention and (ledger.in_the_way() or number >= self._end):
                contexts.load_finite(context)
                ledger.make_room(1)
                if number >= self._end:
                    self._tell_horizon()
            if decide_many(ledger.floats, ledger.ints, contexts.x, self._everyone, self._record) >= 0:
                raise contexts.not_finite()
            contexts.decided()
            return self._records.decision(number, self._record_row.tolist())
        event = self.propose(context, cost=cost, available=available, force=force)
        self._apply_decided(event)
        return event.decision

    def decide_many(self, contexts: Any) -> list[Decision]:
        """Decide several tasks, one after the other: the same decisions as that many calls of `decide`.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1))
        >>> [decision.id for decision in deferrer.decide_many([[0.0, 1.0], [1.0, 0.0]])]
        [0, 1]
        """
        rows = self._contexts.rows(contexts)
        if rows is not None:
            return [self.decide(row) for row in rows]
        ledger = self._ledger
        matrix = self._contexts.matrix(contexts)
        decisions: list[Decision] = []
        while len(decisions) < len(matrix):
            first, done = ledger.next_id, len(decisions)
            n = ledger.memory
            if self._representation is not None:
                self._representation.make_room()
                n = self._representation.free_steps()
            given = matrix[done : done + n]
            ledger.make_room(len(given))
            records = np.zeros((len(given), self._record.shape[1]))
            decide_many(ledger.floats, ledger.ints, self._contexts.represent(given), self._everyone, records)
            decisions += [self._records.decision(first + i, row) for i, row in enumerate(records.tolist())]
            if self._representation is not None:
                self._representation.enter(given)
                self._representation.look_if_due()
        if ledger.next_id > self._end:
            self._tell_horizon()
        return decisions

    def score(self, contexts: Any) -> Scores:
        """Return estimates, widths, price and the route for each context, as if it came next; change nothing.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1), warm_up=0)
        >>> deferrer.score([[0.0, 1.0], [1.0, 0.0]]).estimates["model"]
        array([0., 0.])
        """
        matrix = self._contexts.represent(self._contexts.matrix(contexts))
        ledger = self._ledger
        records = np.zeros((len(matrix), self._record.shape[1]))
        propose_many(ledger.floats, ledger.ints, matrix, self._everyone, -1, records)
        return self._records.scores(records)

    def observe_many(
        self,
        decisions: Sequence[int],
        rewards: Mapping[str, ArrayLike] | None = None,
        cost: Any = None,
    ) -> None:
        """Take in several observations, or, if one of them is wrong, none. NaN: nothing became known.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> ids = [decision.id for decision in deferrer.decide_many([[1.0], [1.0]])]
        >>> deferrer.observe_many(ids, rewards={"model": [0.5, float("nan")]})
        """
        for each in self._outcomes.examine_many(decisions, rewards, cost):
            self._outcomes.take_in(*each)

    def run(
        self,
        contexts: Any,
        rewards: Mapping[str, ArrayLike],
        cost: Any,
        *,
        feedback: str = "full",
        progress: Callable[[int], None] | None = None,
    ) -> Run:
        """Decide a stream of tasks whose outcomes are known beforehand, and observe each one at once.

        The same decisions as that many calls of `decide` and `observe`, in one compiled loop. `rewards` by decider,
        `cost` by expert if there are several; `feedback` is what is observed of them: "full" (the model's reward
        always, the expert's when asked), "bandit" (only the chosen decider's) or "reviewed" (nothing unless an expert
        was asked, then both). `progress` is called with the number of tasks done since it was called last.

        >>> rng = np.random.default_rng(0)
        >>> deferrer = Deferrer(n_features=2, budget=Budget(20, horizon=200, max_cost=1))
        >>> rewards = {"model": rng.random(200), "human": rng.random(200)}
        >>> run = deferrer.run(rng.random((200, 2)), rewards, cost=rng.random(200))
        >>> bool(run.costs.sum() <= 20)
        True
        """
        settings = self.settings
        if not isinstance(feedback, str) or feedback not in FEEDBACKS:
            raise expected("feedback", "call of run", "one of " + ", ".join(map(repr, FEEDBACKS)), feedback)
        rows = self._contexts.rows(contexts)
        matrix = self._contexts.matrix(contexts) if rows is None else self._contexts.encode(rows)
        n = len(matrix)
        values = inputs.as_rewards(rewards, settings.deciders, n, self._outcomes.reward_bounds, missing=False)
        costs = inputs.as_costs(cost, settings.experts, settings.resources, n)
        self._outcomes.check_costs(costs, missing=False)
        run = blank_run(n, len(settings.budget), settings.deciders)
        done = 0
        if rows is not None and self._ledger.ints[ENCODING]:
            done = self._run_unsettled(rows, values, costs, feedback, run)
            matrix[done:] = self._contexts.encode(rows[done:])
            if progress is not None:
                progress(done)
        run_through(self._ledger, self._representation, matrix, values, costs, feedback, run, done, progress)
        if self._ledger.next_id > self._end:
            self._tell_horizon()
        return run

    def _run_unsettled(
        self,
        rows: list[dict[str, Any]],
        values: NDArray[np.float64],
        costs: NDArray[np.float64],
        feedback: str,
        run: Run,
    ) -> int:
        """Take the first tasks of a stream one at a time, as long as the encoder's scales are not settled."""
        done = 0
        while done < len(rows) and self._ledger.ints[ENCODING]:
            decision = self.decide(rows[done])
            route = self.settings.deciders.index(decision.route)
            seen = {decision.route: values[done, route]}
            if feedback != "bandit":
                seen[MODEL] = values[done, 0]
            if feedback == "reviewed" and route == 0:
                seen = {}
            booked = self._records.amount(costs[done, route - 1].tolist()) if route else None
            self.observe(decision.id, seen, booked)
            run.routes[done], run.reasons[done] = route, REASONS.index(decision.reason)
            run.propensities[done], run.rewards[done] = decision.propensity, values[done, route]
            run.costs[done] = costs[done, route - 1] if route else 0.0
            run.prices[done] = inputs.as_amount("price", decision.price, self.settings.resources)
            done += 1
        return done

    def coefficients(self) -> dict[str, Coefficients]:
        """Return what the learner believes of each reward and cost, by name.

        >>> sorted(Deferrer(n_features=2, budget=Budget(10, horizon=100)).coefficients())
        ['cost of human', 'human', 'model']
        """
        return self._records.coefficients(self._ledger)

    def vectors(self, contexts: Any) -> NDArray[np.float64]:
        """Return contexts as the vectors [n, d] that the coefficients belong to: named features as they are encoded.

        >>> Deferrer(n_features=2).vectors([[0.0, 1.0], [1.0, 0.0]]).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        return self._contexts.represent(self._contexts.matrix(contexts))

    def summary(self) -> Summary:
        """Return where the learner stands.

        >>> Deferrer(n_features=1, budget=Budget(10, horizon=100)).summary().left
        10.0
        """
        return self._records.summary(self._ledger)
