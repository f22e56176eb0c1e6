"""What a learner puts in front of its estimates: trees beside the decisions, or an embedding that is retrained."""

from dataclasses import replace

from deferkit.learn.ledger import Ledger
from deferkit.learn.retrained_embedding import RetrainedEmbedding
from deferkit.learn.settings import Settings
from deferkit.learn.tree_columns import TreeColumns

Representation = TreeColumns | RetrainedEmbedding


def representation_of(settings: Settings, ledger: Ledger) -> Representation | None:
    """Return the representation that settings ask for; None where estimates look at contexts as they are."""
    if settings.embedding is not None:
        return RetrainedEmbedding(settings, ledger)
    if settings.representation == "auto":
        # what a fit learns again holds no decisions: the least memory will do
        apart = replace(settings, memory=max(1, settings.pacing.window))
        return TreeColumns(settings.shape, ledger, apart.ledger)
    return None
