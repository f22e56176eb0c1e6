"""The registry of representations: those without settings of their own by name, and embeddings, which have settings."""

import json
from collections.abc import Mapping
from typing import Any

from deferkit.errors import InvalidArgument, expected
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.embed.gradient import GradientEmbedding
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.representation import RepresentationKind
from deferkit.learn.embed.retrained import Retrained
from deferkit.learn.embed.tree_columns import TreeMixture
from deferkit.learn.embed.trees import TreeEmbedding
from deferkit.plugins import PluginGroup, reference_of

REPRESENTATIONS: dict[str, RepresentationKind] = {kind.name: kind for kind in (RepresentationKind(), TreeMixture())}
EMBEDDINGS: tuple[type[Any], ...] = (NeuralEmbedding, TreeEmbedding, GradientEmbedding)
METHODS = ("width", "views", "next_at", "make", "to_dict")
"""What an embedding of a plug-in must have beside `kind`, `frozen`, `memory` and `discount`."""


def is_embedding_class(kind: Any) -> bool:
    """Return whether a class has the members of the protocol `Embedding`.

    >>> is_embedding_class(TreeEmbedding), is_embedding_class(dict)
    (True, False)
    """
    named = isinstance(getattr(kind, "kind", None), str) and isinstance(getattr(kind, "frozen", None), bool)
    return isinstance(kind, type) and named and all(callable(getattr(kind, name, None)) for name in METHODS)


EMBEDDING_PLUGINS = PluginGroup(
    noun="embedding",
    group="deferkit.embeddings",
    wanted="a class with the members of the protocol deferkit.learn.embed.embedding.Embedding",
    accepts=is_embedding_class,
)


def is_embedding(embedding: Any) -> bool:
    """Return whether an object has the settings of an embedding. One from outside the package is remembered.

    What a learner was saved with can so be loaded again in this process; in another one, its class must be the entry
    point that has the name of its `kind`.

    Raises:
        InvalidArgument: Its `kind` is that of another embedding.
    """
    kind = type(embedding)
    if kind in EMBEDDINGS:
        return True
    if not is_embedding_class(kind) or not all(hasattr(embedding, name) for name in ("memory", "discount")):
        return False
    if kind.kind in {each.kind for each in EMBEDDINGS}:
        raise InvalidArgument(f"{reference_of(kind)} has the kind {kind.kind!r}, which is an embedding of deferkit.")
    EMBEDDING_PLUGINS.add(kind.kind, kind)
    return True


def kind_of(representation: str, embedding: Embedding | None) -> RepresentationKind:
    """Return the kind of representation that two settings of a learner name.

    >>> kind_of("auto", None).name, kind_of("linear", TreeEmbedding()).name
    ('auto', 'trees')
    """
    return REPRESENTATIONS[representation] if embedding is None else Retrained(embedding)


def embedding_from(plain: Mapping[str, Any]) -> Embedding:
    """Restore the settings of an embedding from `to_dict()`.

    Args:
        plain: The settings as JSON values, with the key "kind".

    Raises:
        InvalidArgument: If the kind is unknown or a setting is invalid.

    >>> embedding_from({"kind": "neural", "hidden": 20}).hidden
    20
    """
    given = dict(plain)
    kind = given.pop("kind", None)
    found = next((each for each in EMBEDDINGS if each.kind == kind), None)
    if found is None and (found := EMBEDDING_PLUGINS.find(kind, may_import=False)) is None:
        known = ", ".join(map(repr, [*(each.kind for each in EMBEDDINGS), *EMBEDDING_PLUGINS.names()]))
        raise expected("kind", "embedding", f"one of {known}, or used before", kind)
    if not given.get("module"):
        given.pop("module", None)
    try:
        made: Embedding = found(**given)
    except TypeError as error:
        raise InvalidArgument(f"The settings of the embedding {kind!r} are wrong: {error}.") from error
    return made


def given_again(saved: Any, embedding: Embedding | None, source: str) -> Any:
    """Return saved settings of an embedding, completed by the torch module of `embedding`; all else must be equal.

    Args:
        saved: The settings in a state file.
        embedding: What the caller of `Deferrer.load` gives; None if nothing.
        source: The name of the state file in error messages.

    Raises:
        InvalidArgument: If the two differ, or a torch module is needed and not given.
    """
    if embedding is None:
        if isinstance(saved, Mapping) and saved.get("module"):
            raise InvalidArgument(
                f"{source} was saved with a torch module of your own: give the same one again, as in"
                " Deferrer.load(path, embedding=NeuralEmbedding(module=…))."
            )
        return saved
    again = embedding.to_dict() if is_embedding(embedding) else None
    if not isinstance(saved, Mapping) or json.loads(json.dumps(again)) != dict(saved):
        raise InvalidArgument(f"{source} was saved with another embedding: {saved}. Got {again}.")
    return {**saved, "module": getattr(embedding, "module", None)}
