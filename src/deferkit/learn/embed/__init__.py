"""Learned representations: embeddings, and the trees of the representation "auto"."""

import json
from collections.abc import Mapping
from typing import Any

from deferkit.errors import InvalidArgument, expected
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.embed.gradient import GradientEmbedding
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.trees import TreeEmbedding

EMBEDDINGS: tuple[type[Any], ...] = (NeuralEmbedding, TreeEmbedding, GradientEmbedding)


def embedding_from(plain: Mapping[str, Any]) -> Embedding:
    """Restore the settings of an embedding from `to_dict()`.

    Args:
        plain: The settings as JSON values, with the key "kind".

    Raises:
        InvalidArgument: If the kind is unknown or a setting is invalid.

    >>> embedding_from({"kind": "neural", "hidden": 20}).hidden
    20
    """
    kinds = {kind.kind: kind for kind in EMBEDDINGS}
    given = dict(plain)
    kind = given.pop("kind", None)
    if kind not in kinds:
        raise expected("kind", "embedding", "one of " + ", ".join(map(repr, kinds)), kind)
    if not given.get("module"):
        given.pop("module", None)
    made: Embedding = kinds[kind](**given)
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
    again = embedding.to_dict() if isinstance(embedding, EMBEDDINGS) else None
    if not isinstance(saved, Mapping) or json.loads(json.dumps(again)) != dict(saved):
        raise InvalidArgument(f"{source} was saved with another embedding: {saved}. Got {again}.")
    return {**saved, "module": getattr(embedding, "module", None)}
