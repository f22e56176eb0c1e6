"""The learner that users hold: decides who decides, learns from what comes back, and never overspends."""

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deferkit.errors import AlreadySettled, AssumptionWarning, MissingTreesWarning, UnknownDecision, expected
from deferkit.events import BudgetChanged, Corrected, Decided, Event, Expired, Observed, WarmStarted
from deferkit.extras import listed, missing
from deferkit.learn import archive, state
from deferkit.learn.budget_change import change_budget
from deferkit.learn.decisions import SETTLE_AFTER, Decisions
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import INDEX, Exploration
from deferkit.learn.ledger import Ledger
from deferkit.learn.pacing import Pacing
from deferkit.learn.parts import Parts
from deferkit.learn.settings import Settings
from deferkit.learn.stream import Stream
from deferkit.learn.warm_start import WarmStart
from deferkit.types import Amount, Budget, Coefficients, Decision, Drifted, Run, Scores, Summary


class Deferrer:
    """Decides, task by task, whether the model or an expert decides.

    Arguments:
        n_features: the length of a context; or give an `encoder` for named features.
        encoder: turns named features into vectors.
        budget: a `Budget`, or one for each resource by name; without end by default.
        experts: names of the experts; ("human",) by default.
        link: of the rewards, "identity" (default) or "logistic".
        cost_link: the same for the costs.
        pacing: a `Pacing`, or just its kind; "resolve" by default.
        exploration: an `Exploration`, or just its scale; 0.3 by default.
        ridge: of the estimates; 0.01 by default, 0.1 for a logistic link.
        warm_up: decisions that are taken at random first; one for each feature by default.
        explore_floor: the share of decisions taken at random for later evaluation; 0 by default.
        reward_range: what a reward may be; it is checked, never clipped.
        forget: "auto" (default) forgets as fast as what is seen asks for, which is not at all where nothing changes;
            "never" weighs all of the past alike.
        refit: for links other than the identity, where nothing is forgotten: exact refits each time the sample has
            doubled ("doubling"), after every sample ("always") or "never". Asking for refits is asking for
            `forget="never"`, which has "doubling" by default.
        refit_limit: the number of samples after which there are no more refits.
        memory: how many decisions are remembered, beside those that hold budget.
        representation: "linear", or "auto": the context, and what boosted trees make of it, whichever foresees better
            (needs LightGBM: `pip install 'deferkit[trees]'`). "linear" by default; "auto" with an encoder, where
            LightGBM is installed.
        embedding: another learned representation in front, such as a `NeuralEmbedding` or a `TreeEmbedding`.
        seed: of the random decisions.

    Raises:
        InvalidArgument: if an argument is of the wrong kind or out of range.

    A `Deferrer` is not thread-safe: one thread at a time. A copy (`copy.copy`, `copy.deepcopy`, pickle) is a learner of
    its own that goes on from here; attributes that a subclass adds are not copied.

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
        link: str = "identity",
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
            forget=forget,
            refit=refit,
            refit_limit=refit_limit,
            memory=memory,
            embedding=embedding,
            representation=representation_used(representation, encoder, embedding, exploration, cost_link),
            seed=seed,
        )
        least = max(settings.warm_up_steps, SETTLE_AFTER)
        if encoder is not None and memory < least:
            raise expected("memory", "Deferrer", f"at least the {least} rows that its encoder settles on", memory)
        self._set_up(settings, settings.ledger(), encoder)

    def _set_up(self, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> None:
        self.settings = settings
        self._parts = Parts.of(settings, ledger, encoder)
        self._decisions = Decisions(self._parts)
        _, self._ledger, self._records, self._contexts, self._outcomes, self._representation = self._parts
        # where no representation learns from it, an outcome needs no second look
        self._observe_plain = ledger.core.observe_plain if self._representation is None else _refuse

    @classmethod
    def _of(cls, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> Self:
        deferrer = cls.__new__(cls)
        deferrer._set_up(settings, ledger, encoder)
        return deferrer

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
        """Return Algorithm 1 exactly as printed, for comparison; κ = 1 for the logistic link too.

        Arguments:
            n_features: the length of a context.
            budget: one `Budget`.
            experts: names of the experts; ("human",) by default.
            link: of the rewards, "identity" (default) or "logistic".
            cost_link: of the costs, that of the rewards by default; in the paper's logistic experiment it is linear.
            noise: σ of β(t), the standard deviation of rewards and costs around their mean.
            delta: δ of β(t).
            kappa: κ of β(t).
            warm_up: decisions that are taken at random first.
            reward_range: what a reward may be; it is checked, never clipped.
            seed: of the random decisions.

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
        """Decide who decides a task, and reserve what it may cost: `propose`, then `apply`.

        `cost` if it is known beforehand (by expert if there are several), `available` if only some experts are on duty,
        `force` for a route that the caller prescribes: it spends and teaches, but is not the policy's choice.

        >>> deferrer = Deferrer(n_features=1, experts=["ann", "bo"], budget=Budget(10, horizon=100, max_cost=1))
        >>> print(deferrer.decide([1.0], force="bo").explain())
        Task 0 goes to bo, because the caller said so.
        >>> deferrer.decide([1.0], available=[]).reason
        'unavailable'
        """
        if cost is None and available is None and force is None:
            return self._decisions.decide(context)
        event = self._decisions.propose(context, cost, available, force)
        self._decisions.apply(event)
        return event.decision

    def propose(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
    ) -> Decided:
        """Return what `decide` would do, as an event that `apply` takes; change nothing.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> event = deferrer.propose([1.0], force="human")
        >>> event == deferrer.propose([1.0], force="human")
        True
        >>> deferrer.apply(event)
        >>> deferrer.summary().reserved
        1.0
        """
        return self._decisions.propose(context, cost, available, force)

    def decide_many(self, contexts: Any) -> list[Decision]:
        """Decide several tasks, one after the other: the same decisions as that many calls of `decide`.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1))
        >>> [decision.id for decision in deferrer.decide_many([[0.0, 1.0], [1.0, 0.0]])]
        [0, 1]
        """
        rows = self._contexts.rows(contexts)
        if rows is not None:
            return [self.decide(row) for row in rows]
        return self._decisions.decide_many(self._contexts.matrix(contexts))

    def score(self, contexts: Any) -> Scores:
        """Return estimates, widths, price and the route for each context, as if it came next; change nothing.

        >>> deferrer = Deferrer(n_features=2, budget=Budget(10, horizon=100, max_cost=1), warm_up=0)
        >>> deferrer.score([[0.0, 1.0], [1.0, 0.0]]).estimates["model"]
        array([0., 0.])
        """
        return self._records.scores(self._contexts.represent(self._contexts.matrix(contexts)))

    def observe(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Take in what has become known of a decision: rewards of any decider, the cost, in any order and in parts.

        The same observation again changes nothing; a different one raises `ConflictingObservation`.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"model": 0.7, "human": 0.9})
        >>> deferrer.observe(decision.id, cost=0.4)
        >>> deferrer.summary().spent, deferrer.summary().reserved
        (0.4, 0.0)
        """
        if not self._observe_plain(decision, rewards, cost):
            self._outcomes.observe(decision, rewards, cost)

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
        self._outcomes.observe_many(decisions, rewards, cost)

    def correct(self, decision: int, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Replace values that were observed before; the explicit way to contradict an observation.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> decision = deferrer.decide([1.0], force="human")
        >>> deferrer.observe(decision.id, rewards={"human": 0.9}, cost=0.4)
        >>> deferrer.correct(decision.id, cost=0.5)
        >>> deferrer.summary().spent
        0.5
        """
        self._outcomes.correct(decision, rewards, cost)

    def expire(self, decision: int) -> None:
        """Release the reservation of a decision that will not hear back.

        A late cost is still booked, as long as the decision is remembered.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.expire(deferrer.decide([1.0], force="human").id)
        >>> deferrer.summary().reserved, deferrer.summary().expired
        (0.0, 1)
        """
        self._outcomes.expire(decision)

    def remembers(self, decision: int) -> bool:
        """Whether a decision can still be learned from: it is one of the last `memory`, or holds budget.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.remembers(deferrer.decide([1.0]).id), deferrer.remembers(7)
        (True, False)
        """
        try:
            self._ledger.slot(decision)
        except (AlreadySettled, UnknownDecision):
            return False
        return True

    def change_budget(self, total: Amount) -> None:
        """Set the total of the budget: top it up or cut it.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.change_budget(20)
        >>> deferrer.summary().left
        20.0
        """
        change_budget(self._parts, total)

    def warm_start(
        self,
        contexts: Any,
        rewards: Mapping[str, ArrayLike],
        *,
        expert: str | None = None,
        cost: Any = None,
    ) -> None:
        """Learn from labelled tasks of the past instead of a random warm-up. NaN where something is not known.

        `cost` is what `expert` cost on them. The warm-up gets shorter by the number of labels that the least known
        decider has.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100, max_cost=1))
        >>> deferrer.warm_start([[1.0], [0.5]], {"model": [0.6, 0.3], "human": [0.9, 0.4]}, cost=[0.5, 0.2])
        >>> deferrer.decide([1.0]).reason
        'worth it'
        """
        WarmStart(self._parts, self._decisions).learn(contexts, rewards, expert, cost)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        model_reward: str = "model_reward",
        human_reward: str = "human_reward",
        cost: str = "cost",
        context: str = "x_*",
        budget: Budget | Mapping[str, Budget] | None = None,
        expert: str | None = None,
        **settings: Any,
    ) -> Self:
        """Return a learner that starts from a table of past tasks: its encoder is settled on them, and it is warm.

        Rewards and costs may be missing, where nobody was asked or nobody knows. Contexts are named features then,
        called as the columns are. Needs `deferkit[study]`.

        Arguments:
            table: a path (CSV, Parquet, Excel), a pandas or polars frame, or columns by name.
            model_reward: the column of the model's rewards.
            human_reward: the column of the expert's rewards.
            cost: the column of what the expert cost.
            context: columns of the context: names or globs, with commas between.
            budget: of the tasks to come.
            expert: who reviewed the tasks of the table; the first expert by default.
            settings: other arguments of a `Deferrer`. `link` is logistic by default where all rewards are 0 or 1, and
                `reward_range` open where one is outside [0, 1].

        Raises:
            InvalidArgument: if the table cannot be read, or a column is missing or not what it must be.

        >>> past = {"x_size": [1.0, 9.0] * 10, "x_kind": ["a", "b"] * 10, "right": [1, 0] * 10}
        >>> past |= {"expert_right": [None, 1] * 10, "minutes": [None, 2.5] * 10}
        >>> names = {"model_reward": "right", "human_reward": "expert_right", "cost": "minutes"}
        >>> deferrer = Deferrer.from_table(past, **names, budget=Budget(50, horizon=100, max_cost=5))
        >>> deferrer.decide({"x_size": 8.0, "x_kind": "b"}).route
        'human'
        """
        from deferkit.worlds.history import learner_from_table  # noqa: PLC0415 - an extra

        columns = (context, model_reward, human_reward, cost)
        return learner_from_table(cls, table, columns, budget=budget, expert=expert, settings=settings)

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
        return Stream(self._parts, self._decisions).run(contexts, rewards, cost, feedback, progress)

    def apply(self, event: Event) -> None:
        """Change the state by an event. The same events in the same order give the same state, bit for bit.

        >>> from deferkit import Budget, Deferrer, Observed
        >>> first, second = (Deferrer(n_features=1, budget=Budget(10, horizon=100)) for _ in range(2))
        >>> for event in [first.propose([1.0]), Observed(0, {"model": 0.5}, None)]:
        ...     first.apply(event)
        ...     second.apply(event)
        >>> first == second
        True
        """
        if isinstance(event, Decided):
            self._decisions.apply(event)
        elif isinstance(event, Observed):
            self.observe(event.id, event.rewards, event.cost)
        elif isinstance(event, Corrected):
            self.correct(event.id, event.rewards, event.cost)
        elif isinstance(event, Expired):
            self.expire(event.id)
        elif isinstance(event, BudgetChanged):
            self.change_budget(event.total)
        elif isinstance(event, WarmStarted):
            contexts: Any = event.contexts
            self.warm_start(contexts, event.rewards, expert=event.expert, cost=event.costs)
        else:
            raise expected("event", "call of apply", "one of the events of deferkit.events", event)

    def coefficients(self) -> dict[str, Coefficients]:
        """Return what the learner believes of each reward and cost, by name.

        With an `Encoder` they carry the names of its features; columns that trees have made are numbered.

        >>> sorted(Deferrer(n_features=2, budget=Budget(10, horizon=100)).coefficients())
        ['cost of human', 'human', 'model']
        """
        found, encoder = self._records.coefficients(), self._contexts.encoder
        if encoder is None or self.settings.embedding is not None:  # an embedding's columns have no names
            return found
        of_trees = len(found["model"].theta) - encoder.n_features
        names = (*encoder.names, *(f"trees {i + 1}" for i in range(of_trees)))
        return {target: each._replace(names=names) for target, each in found.items()}

    def vectors(self, contexts: Any) -> NDArray[np.float64]:
        """Return contexts as the vectors [n, d] that the coefficients belong to: named features as they are encoded.

        >>> Deferrer(n_features=2).vectors([[0.0, 1.0], [1.0, 0.0]]).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        return self._contexts.vectors(contexts)

    def drifts(self) -> tuple[Drifted, ...]:
        """Return the latest drift of each reward and cost that has drifted, the latest one last.

        A drift is reported when what was learned long ago foresees a target so badly that it is given up.

        >>> Deferrer(n_features=2).drifts()
        ()
        """
        return self._records.drifts()

    def representation_shares(self) -> dict[str, dict[str, float]]:
        """Return how much the estimate of each reward and cost rests on the context alone ("linear") and on trees.

        >>> Deferrer(n_features=2).representation_shares()["human"]
        {'linear': 1.0}
        """
        return self._records.representation_shares()

    @property
    def fitting(self) -> bool:
        """Whether trees are being fitted in the background; `to_bytes` would wait for them.

        >>> Deferrer(n_features=2).fitting
        False
        """
        return self._representation is not None and self._representation.fitting

    @property
    def awaits_fit(self) -> bool:
        """Whether the next observation would wait for a fit that is under way. A decision never does.

        >>> Deferrer(n_features=2).awaits_fit
        False
        """
        return self._representation is not None and self._representation.fitting and self._representation.room() == 1

    def summary(self) -> Summary:
        """Return where the learner stands.

        >>> Deferrer(n_features=1, budget=Budget(10, horizon=100)).summary().left
        10.0
        """
        return self._records.summary()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that decides to one file; see `deferkit.learn.state` for the format.

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
        """Return what `save` writes.

        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> Deferrer.from_bytes(deferrer.to_bytes()) == deferrer
        True
        """
        return archive.to_bytes(self._parts)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, embedding: Embedding | None = None) -> Self:
        """Return the learner that was saved; it goes on exactly where that one was.

        One that was made with a torch module of your own needs the same `embedding` again: code is not saved.

        Raises:
            UnreadableState: if the file cannot be read, or does not hold a learner, whole and consistent.
            InvalidArgument: if it was made with another `embedding`, or with a torch module that is not given again.
        """
        return cls.from_bytes(state.read(path), str(path), embedding=embedding)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "The state", *, embedding: Embedding | None = None) -> Self:
        """Return a learner from what `to_bytes` returned.

        Raises:
            UnreadableState: if these are not the bytes of a learner, whole and consistent.
            InvalidArgument: if it was made with another `embedding`, or with a torch module that is not given again.
        """
        saved = archive.Saved.from_bytes(data, source, embedding)
        with saved.damage_reported():
            deferrer = cls._of(saved.settings(), saved.ledger(), saved.encoder())
            saved.restore(deferrer._parts)
        return deferrer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Deferrer):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def __reduce__(self) -> tuple[Any, ...]:
        # copied and pickled as its state file is read: two learners must not share arrays
        return _from_bytes, (type(self), self.to_bytes(), self.settings.embedding)


def representation_used(
    given: str | None, encoder: Encoder | None, embedding: Embedding | None, exploration: Exploration, cost_link: str
) -> str:
    """Return the representation to use: as given, else "auto" for named features where it can be had."""
    absent = missing("trees")
    if given == "auto" and absent:
        warnings.warn(
            f"Estimates will be linear, because {listed(absent)} is missing: pip install 'deferkit[trees]'.",
            MissingTreesWarning,
            stacklevel=3,
        )
        return "linear"
    plain = embedding is None and exploration.rule == INDEX and cost_link == "identity"
    return given if given is not None else "auto" if encoder is not None and plain and not absent else "linear"


def _refuse(decision: object, rewards: object, cost: object) -> bool:
    del decision, rewards, cost
    return False


def _from_bytes(kind: type[Deferrer], data: bytes, embedding: Embedding | None) -> Deferrer:
    return kind.from_bytes(data, embedding=embedding)
