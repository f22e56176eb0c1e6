"""The representation in front of the estimates: tree columns fitted in the background, or a retrained embedding."""

from dataclasses import replace

from deferkit.learn.core import CONSTANTS
from deferkit.learn.encode import Encoder
from deferkit.learn.initial_state import new_ledger, write_prior
from deferkit.learn.ledger import Ledger
from deferkit.learn.retrained_embedding import RetrainedEmbedding
from deferkit.learn.settings import Settings
from deferkit.learn.tree_columns import TreeColumns

Representation = TreeColumns | RetrainedEmbedding


def representation_of(settings: Settings, ledger: Ledger, encoder: Encoder | None) -> Representation | None:
    """Return the representation that the settings name; None if estimates read the contexts themselves.

    Args:
        settings: Of the learner.
        ledger: Of the learner.
        encoder: Of the learner, if it has one.
    """

    def fresh_ledger(link: str) -> Ledger:
        made = replace(small, link=link)
        fresh = new_ledger(made)
        write_prior(made, fresh, encoder)
        return fresh

    if settings.embedding is not None:
        return RetrainedEmbedding(settings, ledger)
    if settings.representation == "auto":
        # the ledger that a fit learns with holds no decisions, so that the smallest memory is enough; the members that
        # read ranks do not depend on trees, and come last
        small = replace(settings, memory=max(1, settings.pacing.window), without=(*settings.without, "ranks"))
        shape = settings.shape
        if ledger.get("link_state") == CONSTANTS["link_switched"]:
            shape = shape._replace(link="identity")
        return TreeColumns(shape, ledger, fresh_ledger)
    return None
