"""The representation in front of the estimates: tree columns fitted in the background, or a retrained embedding."""

from dataclasses import replace
from functools import partial

from deferkit.learn.initial_state import new_ledger
from deferkit.learn.ledger import Ledger
from deferkit.learn.retrained_embedding import RetrainedEmbedding
from deferkit.learn.settings import Settings
from deferkit.learn.tree_columns import TreeColumns

Representation = TreeColumns | RetrainedEmbedding


def representation_of(settings: Settings, ledger: Ledger) -> Representation | None:
    """Return the representation that the settings name; None if estimates read the contexts themselves.

    Args:
        settings: Of the learner.
        ledger: Of the learner.
    """
    if settings.embedding is not None:
        return RetrainedEmbedding(settings, ledger)
    if settings.representation == "auto":
        # the ledger that a fit learns with holds no decisions, so that the smallest memory is enough
        small = replace(settings, memory=max(1, settings.pacing.window))
        return TreeColumns(settings.shape, ledger, partial(new_ledger, small))
    return None
