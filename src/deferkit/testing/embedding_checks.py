"""The contract of an embedding: that of a learner which has it, and what its views must be."""

import json
from typing import Any

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.embed import EMBEDDING_PLUGINS, EMBEDDINGS, embedding_from, is_embedding
from deferkit.learn.embed.retrained import RetrainedEmbedding
from deferkit.study.policy_registry import run_by_steps, setting_of
from deferkit.testing.learner_checks import ContractCheck, disturb_global_generator, learner_checks, require, run_checks
from deferkit.testing.policy_checks import SHARE, small_stream


def embedding_of(embedding: Any) -> Any:
    """Return the settings of an embedding, by its kind, its class or as they are."""
    if isinstance(embedding, str):
        kinds: dict[str, type[Any]] = {each.kind: each for each in EMBEDDINGS}
        embedding = kinds.get(embedding) or EMBEDDING_PLUGINS.find(embedding) or embedding
    made = embedding() if isinstance(embedding, type) else embedding
    if not is_embedding(made):
        raise InvalidArgument(f"{made!r} is no embedding: it must be {EMBEDDING_PLUGINS.wanted}.")
    return made


def embedding_checks(embedding: Any) -> list[ContractCheck]:
    """Return the checks of an embedding, to be run one by one.

    Args:
        embedding: A kind, `module:name`, a class that needs no arguments, or its settings.

    Raises:
        InvalidArgument: There is no such embedding.
    """
    settings = embedding_of(embedding)
    stream = small_stream()
    setting = setting_of(stream, SHARE * float(stream.costs.sum()), 3)

    def make() -> Deferrer:
        return setting.deferrer(embedding=settings)

    def train() -> RetrainedEmbedding:
        learner = make()
        run_by_steps(learner, stream, "full")
        used = learner._representation
        assert isinstance(used, RetrainedEmbedding)
        return used

    def plain() -> None:
        told = json.dumps(settings.to_dict())
        again = embedding_from(json.loads(told))
        require(json.dumps(again.to_dict()) == told, "`to_dict` and back is another embedding.")

    def seed() -> None:
        found = []
        for number in (1, 2):
            disturb_global_generator(number)
            found.append(run_by_steps(make(), stream, "full")[0])
        require(np.array_equal(found[0], found[1]), "Two learners with the same seed decide otherwise.")

    def views() -> None:
        used = train()
        whole = used.transform(stream.contexts)
        require(np.isfinite(whole).all(), "A view contains NaN or infinity.")
        single = np.concatenate([used.transform(stream.contexts[i : i + 1]) for i in range(stream.n_tasks)])
        require(np.array_equal(whole, single), "The view of a task depends on the tasks beside it.")

    return [
        ContractCheck("settings", "the settings are JSON values, and back", plain),
        ContractCheck("seed", "a seed gives the same decisions again", seed),
        ContractCheck("views", "a view is finite, and does not depend on other tasks", views),
        *learner_checks(make, stream),
    ]


def check_embedding(embedding: Any) -> list[str]:
    """Check that an embedding keeps the promises of its kind.

    Args:
        embedding: A kind, `module:name`, a class that needs no arguments, or its settings.

    Returns:
        The names of the checks.

    Raises:
        ContractViolated: A promise is not kept.
        InvalidArgument: There is no such embedding.
    """
    return run_checks(embedding_checks(embedding))
