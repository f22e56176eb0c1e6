"""Policies of studies by name: learners, baselines, plug-ins."""

import functools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import AssumptionWarning, InvalidArgument, closest
from deferkit.extras import find_missing, join_names, needs
from deferkit.learn.context import as_amount
from deferkit.learn.core import revealed
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.embed import EMBEDDING_PLUGINS
from deferkit.learn.embed.gradient import GradientEmbedding
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.trees import TreeEmbedding
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import INDEX, INTERVAL, Exploration
from deferkit.learn.links import link_named
from deferkit.learn.pacing import PACING_PLUGINS, PACINGS
from deferkit.learn.representation_text import representation_text
from deferkit.learn.settings import DEFAULT_RULE, NOVEMBER_2026
from deferkit.plugins import InvalidPlugin, PluginGroup, is_reference, load_reference
from deferkit.study.baselines import BASELINES, Limits
from deferkit.study.peers import PEERS, Setting, run_peer
from deferkit.study.peers.peer import small_budgets
from deferkit.study.scripts import SCRIPTS, run_script
from deferkit.types import Amount, Budget
from deferkit.worlds.base import Floats, Follower, TaskStream


def is_policy(made: Any) -> bool:
    """Return whether an object makes policies: a class with the two verbs of a `Peer`, or a function.

    >>> is_policy(dict), is_policy(lambda setting: None)
    (False, True)
    """
    if isinstance(made, type):
        return all(callable(getattr(made, verb, None)) for verb in ("decide", "observe"))
    return callable(made)


POLICY_PLUGINS = PluginGroup(
    noun="policy",
    group="deferkit.policies",
    wanted="a class with `decide` and `observe`, or a function, that takes a Setting; or a pacing, or an embedding",
    accepts=is_policy,
)
GROUPS = (POLICY_PLUGINS, PACING_PLUGINS, EMBEDDING_PLUGINS)


class PolicyPlugin(NamedTuple):
    """A policy from outside the package.

    Attributes:
        group: What it is: a policy, a pacing or an embedding.
        value: The class or function.
    """

    group: PluginGroup
    value: Any

    @property
    def is_learner(self) -> bool:
        """Whether it is the default with another pacing or an embedding."""
        return self.group is not POLICY_PLUGINS

    @property
    def has_embedding(self) -> bool:
        """Whether it is the default with an embedding."""
        return self.group is EMBEDDING_PLUGINS


@functools.cache
def policy_plugin(name: str) -> PolicyPlugin | None:
    """Return the plug-in of a policy; None if there is none of this name.

    Args:
        name: Of an entry point of one of `GROUPS`, or `module:name`.

    Raises:
        InvalidPlugin: The plug-in cannot be used.
    """
    if is_reference(name):
        value = load_reference(name)
        groups = [group for group in (PACING_PLUGINS, EMBEDDING_PLUGINS) if group.accepts(value)] or [POLICY_PLUGINS]
    else:
        groups = [group for group in GROUPS if name in group.names()]
    if len(groups) > 1:
        both = " and ".join(group.noun for group in groups)
        raise InvalidPlugin(f"{name!r} is the name of a {both}: name one of them as module:name.")
    return PolicyPlugin(groups[0], groups[0].find(name)) if groups else None


def plugin_names() -> list[str]:
    """Return the names of all installed policies, pacings and embeddings."""
    return [name for group in GROUPS for name in group.names()]


def run_by_steps(learner: Deferrer, stream: TaskStream, feedback: str) -> tuple[NDArray[np.int64], Floats]:
    """Return route and prices of every task, decided and at once observed.

    Where it is not known what an expert would have earned or cost, nobody asked then, and nobody can be asked now.

    >>> from deferkit import Budget
    >>> stream = TaskStream(np.ones((3, 1)), np.array([[0.5, 0.9]] * 2 + [[0.5, np.nan]]), np.ones((3, 1, 1)))
    >>> learner = Deferrer(n_features=1, budget=Budget(3, horizon=3, max_cost=1), seed=4)
    >>> run_by_steps(learner, stream, "full")[0]
    array([1, 1, 0])
    """
    deciders, resources = learner.settings.deciders, learner.settings.resources
    places = {name: place for place, name in enumerate(deciders)}
    follower = None if stream.running is None else Follower(stream.contexts, stream.running)
    routes = np.zeros(stream.n_tasks, dtype=np.int64)
    prices = np.zeros((stream.n_tasks, len(resources)))
    unknown = (np.isnan(stream.rewards[:, 1:]) | np.isnan(stream.costs).any(axis=2)).tolist()
    rewards, costs = stream.rewards.tolist(), stream.costs.tolist()
    for task in range(stream.n_tasks):
        context = stream.contexts[task] if follower is None else follower.context(task)
        known = None
        if any(unknown[task]):
            known = [name for name, lost in zip(deciders[1:], unknown[task], strict=True) if not lost]
        decision = learner.decide(context, available=known)
        route = places[decision.route]
        routes[task] = route
        prices[task] = as_amount("price", decision.price, resources)
        seen = {deciders[each]: rewards[task][each] for each in revealed(feedback, route)}
        if route == 0:
            learner.observe(decision.id, seen)
            continue
        paid = costs[task][route - 1]
        cost: Amount = paid[0] if len(resources) == 1 else dict(zip(resources, paid, strict=True))
        learner.observe(decision.id, seen, cost)
        if follower is not None:
            follower.record_answer(task, rewards[task][route], paid[0])
    return routes, prices


SURE_COST = 3.0  # above what a synthetic task costs at σ = 0.1; one that costs more raises it
NOISE = 0.1  # σ that the paper's algorithm is told where nobody knows it

RULES = {name: rule.description for name, rule in BASELINES.items()}
LEARNERS = {
    "default": "deferkit as it comes: optimism, forgetting at an estimated rate, and a price that is solved anew;"
    " on tables with trees beside the linear estimates, whichever predict better",
    "linear": "the same without trees",
    **{name: f"the same with {PACINGS[name].description}" for name in ("adaptive", "gradient")},
    "confidence": "the default with a prior: it is told which feature is the model's own confidence, if one is",
    "default-2026.11": "the default until November 2026: values without ranks, a fixed link, no free exploration",
    "interval": "the default with the ends of intervals, also for costs, and prices that are solved on means",
    "never": "the default without forgetting",
    "greedy": "the default without exploration",
    "thompson": "Thompson sampling with the default's price",
    "neural": "the default on the hidden layer of networks beside the context (NeuralLinear, NeuralLogistic)",
    "tree": "the default on what boosted trees predict beside the context (TreeLinear)",
    "neural-ucb": "networks with the widths of NeuralUCB, and the default's price",
    "neural-ts": "networks with the draws of NeuralTS, and the default's price",
    "paper": "Algorithm 1 exactly as printed",
}
OLD_DEFAULT = f"default-{NOVEMBER_2026}"
SETTINGS: dict[str, dict[str, Any]] = {
    OLD_DEFAULT: {"defaults": NOVEMBER_2026},
    "never": {"forget": "never"},
    "greedy": {"exploration": Exploration(scale=0.0, prior=0.0)},
    "interval": {"exploration": Exploration(rule=INTERVAL)},
    "thompson": {"exploration": Exploration.thompson()},
    "neural-ts": {"exploration": Exploration.thompson()},
}
"""Arguments of the learners that differ from the default by nothing else."""
WITH_TREES = ("default", "confidence", OLD_DEFAULT)  # on tables
NEEDS = dict.fromkeys(("tree", "script-trees", "script-trees-15"), "trees")  # parts in `deferkit.extras`
EMBEDDINGS: dict[str, type[Any]] = {
    "neural": NeuralEmbedding,
    "tree": TreeEmbedding,
    "neural-ucb": GradientEmbedding,
    "neural-ts": GradientEmbedding,
}
OPTIMA = {
    "opt": "the best rule that knows the distribution, and its phase if it drifts (in hindsight where nobody knows it)",
    "static": "the same without the phase: the best fixed rule for what is expected on average over time",
    "informed": "the best rule that knows the true probabilities of a made-up table, which no other policy is told",
    "achievable": "the best rule of the context: opt where the distribution is known, else cross-fitted predictions"
    " with the price that uses the budget, judged by what came",
    "hindsight": "the best choice for the outcomes that came, noise and all; judged by those outcomes",
}
OTHERS = {name: script.description for name, script in SCRIPTS.items()}
OTHERS |= {name: peer.description for name, peer in PEERS.items()}
POLICIES = RULES | LEARNERS | OTHERS | OPTIMA


def check_policy_name(name: str) -> None:
    """Raise InvalidArgument, which lists the policies, unless there is one of this name, here or in a plug-in."""
    if not isinstance(name, str) or (name not in POLICIES and policy_plugin(name) is None):
        names = [*POLICIES, *plugin_names()]
        raise InvalidArgument(f"There is no policy {name!r}. There is: {', '.join(names)}.{closest(str(name), names)}")


def is_learner(name: str) -> bool:
    """Return whether a policy is a `Deferrer` in all worlds: one of `LEARNERS`, or a pacing or embedding of a plug-in.

    >>> is_learner("default"), is_learner("random")
    (True, False)
    """
    plugin = None if name in POLICIES else policy_plugin(name)
    return name in LEARNERS or (plugin is not None and plugin.is_learner)


def has_embedding(name: str) -> bool:
    """Return whether a policy is a learner with an embedding, which takes much longer.

    >>> has_embedding("neural"), has_embedding("default")
    (True, False)
    """
    plugin = None if name in POLICIES else policy_plugin(name)
    return name in EMBEDDINGS or (plugin is not None and plugin.has_embedding)


def without_trees(names: Iterable[str], stream: TaskStream) -> list[str]:
    """Return a remark if the default has to do without trees on a table."""
    absent = find_missing("trees")
    if not absent or stream.truth is not None or "default" not in names:
        return []
    return [f"The default is linear here, because {join_names(absent)} is missing: pip install 'deferkit[trees]'."]


def check_installed(names: Iterable[str]) -> None:
    """Raise InvalidArgument, which says what to install, if the library of a policy is missing."""
    for name in names:
        if name in NEEDS:
            needs(NEEDS[name], what=f"The policy {name!r}")
        package = PEERS[name].import_name.partition(".")[0] if name in PEERS else ""
        if package and find_spec(package) is None:
            raise InvalidArgument(f"The policy {name!r} needs another library: pip install {PEERS[name].install}.")


class PolicyRun(NamedTuple):
    """The decisions of a policy on a stream."""

    routes: NDArray[np.int64]  # [n]
    prices: Floats | None  # [n, R] of a learner
    us_per_step: float  # NaN where nothing was learned
    representation: str | None = None  # what the estimates of a learner rest on in the end
    remark: str | None = None  # why a learner asked less than planned; empty if it did not


def needs_hindsight(name: str) -> bool:
    """Whether a policy cannot be measured where it is not known what the human would have earned and cost.

    >>> [needs_hindsight(name) for name in ("opt", "arbitrary-human", "default", "model-only")]
    [True, True, False, False]
    """
    return not is_learner(name) and name != "model-only"


def check_hindsight(name: str, stream: TaskStream) -> None:
    """Raise InvalidArgument if a policy needs outcomes that a stream does not have; the message says what works."""
    if needs_hindsight(name) and not stream.complete:
        lost = stream.n_tasks - int(stream.askable.sum())
        raise InvalidArgument(
            f"The policy {name!r} needs to know what the human would have earned and cost in every task, but that is"
            f" missing in {lost:,} of {stream.n_tasks:,} rows. Without it work: model-only, {', '.join(LEARNERS)}."
        )
    if name == "informed" and stream.truth is None and stream.hidden is None:
        raise InvalidArgument(
            "The policy 'informed' needs to know the true probabilities, which only made-up worlds do."
        )


def sure_cost(stream: TaskStream) -> float:
    """Return a cost that no task of the stream passes: a round one, or on a table the largest that is known."""
    largest = float(np.nanmax(stream.costs))
    if stream.past is not None:
        largest = float(np.nanmax(stream.past.costs, initial=largest))
    if stream.truth is None:
        return largest if largest > 0 else SURE_COST
    return max(SURE_COST, math.ceil(largest))


def range_of(stream: TaskStream) -> tuple[float, float]:
    """Return the range of rewards: [0, 1] where all of a table are, unbounded where noise may leave it."""
    rewards = stream.rewards if stream.past is None else np.concatenate([stream.rewards, stream.past.rewards])
    known = rewards[~np.isnan(rewards)]
    within = stream.truth is None and len(known) > 0 and known.min() >= 0 and known.max() <= 1
    return (0.0, 1.0) if within else link_named(stream.link).domain


def make_learner(
    name: str, stream: TaskStream, budgets: Sequence[float], *, seed: int, parameters: Mapping[str, Any] | None = None
) -> Deferrer:
    """Return a fresh learner of this name for a stream; `parameters` are those of a `Deferrer`.

    >>> from deferkit.worlds.synthetic import Synthetic
    >>> make_learner("adaptive", Synthetic(horizon=100).draw(0), [10], seed=0).settings.pacing.kind
    'adaptive'
    """
    each = [Budget(total, horizon=stream.n_tasks, max_cost=sure_cost(stream)) for total in budgets]
    n_experts = stream.costs.shape[1]
    given: dict[str, Any] = {
        "n_features": stream.contexts.shape[1],
        "experts": ["human"] if n_experts == 1 else [f"expert {i + 1}" for i in range(n_experts)],
        "link": stream.link,
        "reward_range": range_of(stream),
        "seed": seed,
    }
    if name == "paper":
        if len(each) > 1:
            raise InvalidArgument("The paper's algorithm has one resource. Got a world with several.")
        with small_budgets():
            # The paper's own experiments break its assumption on the budget; the report says so.
            warnings.simplefilter("ignore", AssumptionWarning)
            noise = NOISE if stream.noise is None else stream.noise
            printed: dict[str, Any] = {"budget": each[0], "noise": noise, "cost_link": "identity"}
            return Deferrer.paper(**(printed | given | dict(parameters or {})))
    if stream.first_use:
        del given["link"], given["reward_range"]
    if gets_columns(stream):
        del given["n_features"]
        given["encoder"] = encoder_of(stream.columns or {})
    given |= SETTINGS.get(name, {})
    if name == "confidence":
        given["confidence"] = confidence_feature(stream)
    if name in WITH_TREES and stream.truth is None and not (stream.first_use or find_missing("trees")):
        given["representation"] = "auto"
    elif name == "linear" and gets_columns(stream):
        given["representation"] = "linear"
    if has_embedding(name):
        check_installed([name])
        told = {} if parameters is None else dict(parameters)
        given["embedding"] = embedding_class(name)(**told.pop("embedding", {}))
        parameters = told
    elif name in PACINGS or name not in LEARNERS:
        given["pacing"] = name
    given |= dict(parameters or {})
    if stream.confidence_at is not None and can_have_prior(given):
        given.setdefault("confidence", stream.confidence_at)
    budget = each[0] if len(each) == 1 else {f"resource {i + 1}": b for i, b in enumerate(each)}
    with small_budgets():
        return Deferrer(**({"budget": budget} | given))


def can_have_prior(given: Mapping[str, Any]) -> bool:
    """Return whether a learner with these arguments can start from the model's confidence."""
    exploration = given.get("exploration")
    by_index = not isinstance(exploration, Exploration) or exploration.rule == INDEX
    is_new = given.get("defaults", DEFAULT_RULE) != NOVEMBER_2026
    return is_new and by_index and "embedding" not in given and all(map(math.isfinite, given["reward_range"]))


def gets_columns(stream: TaskStream) -> bool:
    """Return whether a learner gets named features and an encoder of its own, not vectors."""
    return stream.first_use and stream.columns is not None


def encoder_of(columns: Mapping[str, Any]) -> Encoder:
    """Return a fresh encoder for columns of numbers (arrays) and texts (lists), as a team would declare them.

    >>> encoder_of({"score": np.array([0.5, 0.1]), "kind": ["a", None]}).features
    ('score', 'kind')
    """
    numbers = [name for name, column in columns.items() if isinstance(column, np.ndarray)]
    levels = {name: sorted(set(column) - {None}) for name, column in columns.items() if name not in numbers}
    return Encoder(numbers=numbers, categories=levels)


def confidence_feature(stream: TaskStream) -> int | str | None:
    """Return the feature that is the model's own confidence, by name or index; None if no feature is.

    >>> from deferkit.worlds.classifiers import SeveralExperts
    >>> confidence_feature(SeveralExperts().draw(seed=0))
    1
    """
    if stream.confidence is None:
        return None
    features: Iterable[tuple[int | str, Any]] = enumerate(stream.contexts.T)
    if gets_columns(stream):
        features = (stream.columns or {}).items()
    return next((feature for feature, values in features if np.array_equal(values, stream.confidence)), None)


def embedding_class(name: str) -> type[Any]:
    """Return the class of the embedding of a policy, which has one."""
    plugin = None if name in EMBEDDINGS else policy_plugin(name)
    kind: type[Any] = EMBEDDINGS[name] if plugin is None else plugin.value
    return kind


def run_learner(learner: Deferrer, stream: TaskStream, feedback: str) -> PolicyRun:
    """Run a learner over a stream: in the compiled loop, or step by step where the contexts depend on the steps."""
    begin = time.perf_counter()
    if stream.running is not None or not stream.complete:
        routes, prices = run_by_steps(learner, stream, feedback)
    else:
        rewards = {name: stream.rewards[:, i] for i, name in enumerate(learner.settings.deciders)}
        contexts = pl.DataFrame(dict(stream.columns or {})) if gets_columns(stream) else stream.contexts
        run = learner.run(contexts, rewards, stream.costs, feedback=feedback)
        routes, prices = run.routes, run.prices
    us = (time.perf_counter() - begin) / stream.n_tasks * 1e6
    return PolicyRun(routes, prices, us, representation_text(learner), learner.summary().remark)


def run_policy(
    name: str,
    stream: TaskStream,
    budgets: Sequence[float],
    *,
    seed: int,
    feedback: str = "full",
    parameters: Mapping[str, Any] | None = None,
) -> PolicyRun:
    """Run any policy but an optimum over a stream."""
    check_hindsight(name, stream)
    if name in BASELINES:
        limits = Limits(budgets, sure_cost(stream), seed)
        return PolicyRun(BASELINES[name].choose(stream, limits), None, math.nan)
    if name in SCRIPTS:
        check_installed([name])
        check_one_expert(name, stream)
        routes, us = run_script(name, stream, budgets[0], max_cost=sure_cost(stream), seed=seed, feedback=feedback)
        return PolicyRun(routes, None, us)
    if not is_learner(name):
        plugin = None if name in PEERS else policy_plugin(name)
        make = PEERS[name].make if plugin is None else plugin.value
        return run_made(make, name, stream, budgets, seed=seed, feedback=feedback)
    told = dict(parameters or {})
    warm = told.pop("warm_start", True)  # False: as if there were no past tasks
    learner = make_learner(name, stream, budgets, seed=seed, parameters=told)
    return run_learner(warm_started(learner, stream) if warm else learner, stream, feedback)


def setting_of(stream: TaskStream, budget: float, seed: int) -> Setting:
    """Return the setting of a stream, which a policy made for that stream gets in advance."""
    return Setting(
        n_features=stream.contexts.shape[1],
        budget=budget,
        horizon=stream.n_tasks,
        mean_cost=float(stream.known()[1][:, 0, 0].mean()),
        seed=seed,
        max_cost=sure_cost(stream),
        link=stream.link,
        reward_range=range_of(stream),
    )


def check_one_expert(name: str, stream: TaskStream) -> None:
    """Raise InvalidArgument unless a stream has one expert and one resource."""
    if stream.costs.shape[1:] != (1, 1):
        raise InvalidArgument(f"The policy {name!r} is for one expert and one resource.")


def run_made(
    make: Callable[[Setting], Any],
    name: str,
    stream: TaskStream,
    budgets: Sequence[float],
    *,
    seed: int,
    feedback: str,
) -> PolicyRun:
    """Run a policy that is made for one stream: a peer, or one of a plug-in."""
    check_one_expert(name, stream)
    if stream.running is not None:
        raise InvalidArgument(f"The policy {name!r} cannot follow what becomes known of a person along the way.")
    setting = setting_of(stream, budgets[0], seed)
    made = make(setting)
    if isinstance(made, Deferrer):
        return run_learner(made, stream, feedback)
    if not is_policy(type(made)):
        raise InvalidArgument(f"The policy {name!r} must make a Deferrer or an object with `decide` and `observe`.")
    routes, us = run_peer(made, stream, setting, feedback)
    return PolicyRun(routes, None, us)


def warm_started(learner: Deferrer, stream: TaskStream) -> Deferrer:
    """Return the learner after it has learned from the past tasks of the stream, if there are any."""
    if stream.past is not None:
        x, rewards, costs = stream.past
        by_decider = {who: rewards[:, i] for i, who in enumerate(learner.settings.deciders)}
        learner.warm_start(x, by_decider, cost=costs)
    return learner
